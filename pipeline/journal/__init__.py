"""What survives a crash: every ticket's steps, the answers not yet delivered, and the minutes of the day.

SQLite with one writing connection on a thread of its own. The lane appends tuples to a list; a writer task
takes the list some fifty times a second and writes it in one transaction, one hop to the database's thread.
"""
