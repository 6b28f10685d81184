"""TODO _context"""
