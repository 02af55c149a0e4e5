"""Parts that schedules of several instruction sets share."""
