"""The sandbox: bubblewrap's arguments, what it shows, and which system calls it refuses."""
