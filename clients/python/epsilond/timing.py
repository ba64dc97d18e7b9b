"""Pauses of either client, under names that differ by one word."""

from asyncio import sleep as async_sleep
from time import sleep

__all__ = ["async_sleep", "sleep"]
