"""Tests of `console.management`."""
