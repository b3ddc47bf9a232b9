"""The lab's scenarios, in which laws are tried against their rivals."""
