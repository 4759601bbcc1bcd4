"""The console in a real Chromium: what people see and press, while real processes serve it, work and die."""
