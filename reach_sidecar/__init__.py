"""The daemon beside each agent."""
