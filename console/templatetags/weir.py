"""Template words: numbers with units, ages, state glyphs."""

from django import template

register = template.Library()
