"""What requests and responses look like; field names are what clients program against."""
