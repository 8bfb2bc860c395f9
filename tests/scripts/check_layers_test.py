import unittest

from planted import PlantedTree


class CheckLayers(PlantedTree):
    def setUp(self):
        super().setUp()
        self.module("base")
        self.module("protocol", "base")
        self.module("local", "base")
        self.module("net", "base")
        self.plant("src/base/a.hpp", "#include <vector>\n")
        self.plant("src/protocol/a.hpp", '#include "base/a.hpp"\n#include <nlohmann/json.hpp>\n')
        self.plant("include/shared_tensor/a.hpp", "#include <string>\n")

    def check(self):
        return self.script("check_layers", "--root", self.root)

    def test_a_clean_tree_passes(self):
        self.assert_accepted(self.check())

    def test_an_include_without_an_arrow_fails(self):
        self.plant("src/local/a.cpp", '#include "protocol/a.hpp"\n')
        self.assert_rejected(self.check(), "src/local/a.cpp:1", "local may not include protocol")

    def test_an_arrow_that_is_not_in_the_drawing_fails(self):
        self.module("base", "protocol")
        self.assert_rejected(self.check(), "base -> protocol")

    def test_a_module_that_is_not_in_the_drawing_fails(self):
        self.module("misc")
        self.assert_rejected(self.check(), "'misc' is no module")

    def test_an_include_from_another_root_fails(self):
        self.plant("src/base/b.cpp", '#include "a.hpp"\n')
        self.assert_rejected(self.check(), 'write "base/a.hpp"')

    def test_libtorch_outside_its_modules_fails(self):
        self.plant("src/local/a.cpp", "#include <ATen/core/Tensor.h>\n")
        self.assert_rejected(self.check(), "libtorch")

    def test_json_in_base_fails(self):
        self.plant("src/base/a.cpp", "#include <nlohmann/json.hpp>\n")
        self.assert_rejected(self.check(), "nlohmann_json")

    def test_cuda_outside_its_folder_fails(self):
        self.plant("src/base/a.cpp", "#include <cuda_runtime_api.h>\n")
        self.assert_rejected(self.check(), "CUDA")

    def test_httplib_in_a_header_fails(self):
        self.plant("src/net/a.hpp", '#include "httplib.h"\n')
        self.assert_rejected(self.check(), "httplib.h costs seconds")

    def test_httplib_in_a_third_file_fails(self):
        for name in "abc":
            self.plant(f"src/net/{name}.cpp", "#include <httplib.h>\n")
        self.assert_rejected(self.check(), "more than 2 files")

    def test_each_forbidden_header_in_a_public_header_fails(self):
        for header in ("nlohmann/json.hpp", "httplib.h", "ATen/core/Tensor.h", "cuda_runtime.h", "openssl/ssl.h"):
            with self.subTest(header):
                self.plant("include/shared_tensor/b.hpp", f"#include <{header}>\n")
                self.assert_rejected(self.check(), "include/shared_tensor/b.hpp:1")

    def test_an_internal_header_in_a_public_one_fails(self):
        self.plant("include/shared_tensor/b.hpp", '#include "base/a.hpp"\n')
        self.assert_rejected(self.check(), "public headers include each other")

    def test_json_in_the_header_that_is_asked_for_passes(self):
        self.plant("include/shared_tensor/json.hpp", "#include <nlohmann/json.hpp>\n")
        self.assert_accepted(self.check())

    def test_the_daemon_includes_its_own_folders(self):
        self.plant("daemon/cli/a.hpp", "")
        self.plant("daemon/main.cpp", '#include "cli/a.hpp"\n')
        self.assert_accepted(self.check())

    def test_an_include_of_the_daemon_in_a_module_fails(self):
        self.plant("daemon/cli/a.hpp", "")
        self.plant("src/base/a.cpp", '#include "cli/a.hpp"\n')
        self.assert_rejected(self.check(), "is in no module")

    def test_a_public_header_that_does_not_exist_fails(self):
        self.plant("daemon/main.cpp", "#include <shared_tensor/nothing.hpp>\n")
        self.assert_rejected(self.check(), "does not exist")


if __name__ == "__main__":
    unittest.main()
