"""Calendars in the iCalendar format: events that people or other programs wrote, read event by event."""
