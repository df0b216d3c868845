"""The examples of README.md and of docs/recipes.md, in their order."""

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

    def test_the_examples_of_the_recipes_run(self) -> None:
        page = Path(__file__).parents[3].joinpath("docs", "recipes.md").read_text()
        examples = [rest.split("```")[0] for rest in page.split("```python\n")[1:]]
        self.assertEqual(len(examples), 9)
        with cistern.Client(ONE) as client, mock.patch("builtins.print") as told:
            for directory in ("/site", "/services"):
                client.mkdir(directory)
            client.write("/site/index.html", "hello\n")
            for example in examples:
                exec(compile(example, "recipes.md", "exec"), {"client": client})
            client.remove("/site/index.html")
            client.rmdir("/site")
        self.assertIn(mock.call("10.0.0.7:8080", "leads"), told.call_args_list)
        self.assertIn(mock.call("web-2", "at", "10.0.0.8:8080"), told.call_args_list)
        self.assertEqual([call.args for call in told.call_args_list if call.args[0] in ("hello", "round")], [("round", 1), ("hello",)])


if __name__ == "__main__":
    unittest.main()
