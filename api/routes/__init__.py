"""The routes, one module a group. `interlock.api.groups` lists them, and says how to add one."""
