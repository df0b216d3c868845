"""The examples of README.md, in their order."""

import ast
import asyncio
import inspect
import os
import unittest
from pathlib import Path
from unittest import mock

import cistern
from world import ONE


class Readme(unittest.TestCase):
    def test_the_examples_run(self) -> None:
        page = Path(__file__).parent.parent.joinpath("README.md").read_text()
        examples = [rest.split("```")[0] for rest in page.split("```python\n")[1:]]
        self.assertEqual(len(examples), 2)
        with mock.patch.dict(os.environ, {"CISTERN_AGENT": ONE}), mock.patch("builtins.print") as told:
            for example in examples:
                code = compile(example, "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
                if inspect.iscoroutine(running := eval(code, {})):
                    asyncio.run(running)
        self.assertEqual([call.args[0] for call in told.call_args_list], ["certain"])
        with cistern.Client(ONE) as client:
            self.assertEqual(client.read("/jobs/report"), b"begun")


if __name__ == "__main__":
    unittest.main()
