"""How a test that looks at the source tree runs: it tries itself first, then says all that is wrong with the tree."""

import os
import sys


def run_test(self_test, check_tree, in_order):
    """Ends the program, with 1 if there are problems.

    Args:
      self_test: returns what the test has not noticed in trees made for the purpose.
      check_tree: returns what is wrong with the tree below the folder that it is given.
      in_order: what is printed where nothing is wrong.
    """
    root = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    problems = self_test() + check_tree(root)
    print("\n".join(problems) or in_order)
    sys.exit(1 if problems else 0)
