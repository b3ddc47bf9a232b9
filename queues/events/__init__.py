"""Events and their transport: Arrow blocks, and parsers of other formats."""

from queues.events.arrow_alone import use_arrow_alone

use_arrow_alone()
