"""Events and how they travel: blocks in Arrow, and what is read into them."""

from queues.events.arrow_alone import use_arrow_alone

use_arrow_alone()
