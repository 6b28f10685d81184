"""What connects reactifact to libraries that people already use.

Each module needs the extra of its name, and nothing else of the
package imports it.
"""
