"""`python -m demo`: real pull requests and plans, driven through real servers. No part of what is installed."""
