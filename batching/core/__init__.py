"""The pure scheduler: events and a time in, commands out. No clock, no IO, no asyncio."""
