"""The Gregorian calendar in whole numbers, for all days that fit 64 bits.

Arrow's functions cover 65,536 years. Spark's functions and the functions of this module cover all timestamps. Source of
the formulas: Hinnant, "chrono-Compatible Low-Level Date Algorithms".
"""

import numpy as np

MICROSECONDS = 1_000_000
DAY_US = 86_400 * MICROSECONDS
_ERA_DAYS = 146_097  # days of 400 years
_EPOCH = 719_468  # days from 0000-03-01 to 1970-01-01


def split_days(days: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the year, month, and day of days since 1970-01-01."""
    shifted = days.astype(np.int64) + _EPOCH
    era = shifted // _ERA_DAYS
    of_era = shifted - era * _ERA_DAYS
    year_of_era = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    from_march = (5 * of_year + 2) // 153
    day = of_year - (153 * from_march + 2) // 5 + 1
    month = np.where(from_march < 10, from_march + 3, from_march - 9)
    return year_of_era + era * 400 + (month <= 2), month, day


def join_days(year: np.ndarray, month: np.ndarray, day: np.ndarray) -> np.ndarray:
    """Return the days since 1970-01-01 of a year, month, and day."""
    from_march_year = year - (month <= 2)
    era = from_march_year // 400
    year_of_era = from_march_year - era * 400
    from_march = np.where(month > 2, month - 3, month + 9)
    of_year = (153 * from_march + 2) // 5 + day - 1
    of_era: np.ndarray = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + of_year
    days: np.ndarray = era * _ERA_DAYS + of_era - _EPOCH
    return days


def find_day_of_year(days: np.ndarray) -> np.ndarray:
    """Return the day of the year, from 1."""
    places: np.ndarray = days - _find_first_day(split_days(days)[0]) + 1
    return places


def find_weekday(days: np.ndarray) -> np.ndarray:
    """Return the weekday; 0 is Monday."""
    weekday: np.ndarray = (days.astype(np.int64) + 3) % 7
    return weekday


def find_week(days: np.ndarray) -> np.ndarray:
    """Return the week of the year by ISO 8601: the first week has the year's first Thursday."""
    thursday = days.astype(np.int64) - find_weekday(days) + 3
    week: np.ndarray = (thursday - _find_first_day(split_days(thursday)[0])) // 7 + 1
    return week


def _find_first_day(year: np.ndarray) -> np.ndarray:
    ones = np.ones_like(year)
    return join_days(year, ones, ones)
