"""Events and their transport: blocks in Arrow, and the formats that are parsed into them."""

from queues.events.arrow_alone import use_arrow_alone

use_arrow_alone()
