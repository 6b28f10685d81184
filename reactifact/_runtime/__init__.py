"""TODO _runtime"""
