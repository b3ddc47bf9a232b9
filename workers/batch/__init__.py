"""Tasks on a timetable: runs, their chunks, and who works them."""
