"""What is kept between cycles and restarts: ledger, journal, shelf, under one lock."""

from healthsvc.store.atomic import write_atomically
from healthsvc.store.errors import StoreError
from healthsvc.store.journal import Journal, sqlite_url
from healthsvc.store.ledger import DayStatus, Ledger
from healthsvc.store.lock import StateLock
from healthsvc.store.shelf import Shelf

__all__ = ["DayStatus", "Journal", "Ledger", "Shelf", "StateLock", "StoreError", "sqlite_url", "write_atomically"]
