"""What connects reactifact to libraries that people already use.

Each module needs the extra of its name (`pip install 'reactifact[langgraph]'`), and nothing else of the
package imports it.
"""
