import unittest

from planted import PlantedTree

# What is planted into a clean tree ("base -> protocol": an arrow of a module), and the words of the rejection.
REJECTED = [
    ({"src/local/a.cpp": '#include "protocol/a.hpp"\n'}, "src/local/a.cpp:1", "local may not include protocol"),
    ({"base": "protocol"}, "base -> protocol"),  # an arrow that is not in the drawing
    ({"misc": ""}, "'misc' is no module"),
    ({"src/base/b.cpp": '#include "a.hpp"\n'}, 'write "base/a.hpp"'),
    ({"src/local/a.cpp": "#include <ATen/core/Tensor.h>\n"}, "libtorch"),
    ({"src/base/a.cpp": "#include <nlohmann/json.hpp>\n"}, "nlohmann_json"),
    ({"src/base/a.cpp": "#include <cuda_runtime_api.h>\n"}, "CUDA"),
    ({"src/net/a.hpp": '#include "httplib.h"\n'}, "httplib.h costs seconds"),
    ({f"src/net/{name}.cpp": "#include <httplib.h>\n" for name in "abc"}, "more than 2 files"),
    ({"include/shared_tensor/b.hpp": '#include "base/a.hpp"\n'}, "public headers include each other"),
    ({"daemon/cli/a.hpp": "", "src/base/a.cpp": '#include "cli/a.hpp"\n'}, "is in no module"),
    ({"daemon/main.cpp": "#include <shared_tensor/nothing.hpp>\n"}, "does not exist"),
    *(({"include/shared_tensor/b.hpp": f"#include <{header}>\n"}, "include/shared_tensor/b.hpp:1")
      for header in ("nlohmann/json.hpp", "httplib.h", "ATen/core/Tensor.h", "cuda_runtime.h", "openssl/ssl.h")),
]
ACCEPTED = [
    {},
    {"include/shared_tensor/json.hpp": "#include <nlohmann/json.hpp>\n"},  # the header that is asked for
    {"daemon/cli/a.hpp": "", "daemon/main.cpp": '#include "cli/a.hpp"\n'},
]


class CheckLayers(PlantedTree):
    def outcome(self, files):
        self.setUp()  # a fresh tree
        for name in ("protocol", "local", "net"):
            self.module(name, "base")
        self.module("base")
        self.plant("src/base/a.hpp", "#include <vector>\n")
        self.plant("src/protocol/a.hpp", '#include "base/a.hpp"\n#include <nlohmann/json.hpp>\n')
        self.plant("include/shared_tensor/a.hpp", "#include <string>\n")
        for path, text in files.items():
            self.plant(path, text) if "/" in path else self.module(path, text)
        return self.script("check_layers", "--root", self.root)

    def test_each_violation_is_rejected_with_its_place_and_reason(self):
        for files, *words in REJECTED:
            with self.subTest(words):
                self.assert_rejected(self.outcome(files), *words)

    def test_a_tree_without_violations_passes(self):
        for files in ACCEPTED:
            with self.subTest(files):
                self.assert_accepted(self.outcome(files))


if __name__ == "__main__":
    unittest.main()
