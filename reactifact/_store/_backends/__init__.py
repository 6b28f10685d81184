"""TODO _store._backends"""
