#include "temporary_model.hpp"

#include "torch/load_model.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/jit/api/module.h>
#include <unistd.h>

#include <cstdlib>

namespace shared_tensor::test {

TemporaryFile::TemporaryFile(const std::string& contents) {
    const char* folder = std::getenv("TMPDIR");
    path_ = std::string(folder != nullptr ? folder : "/tmp") + "/shared_tensor_test_XXXXXX";
    const int file = ::mkstemp(path_.data());
    if (file < 0 || ::write(file, contents.data(), contents.size()) != static_cast<ssize_t>(contents.size())) {
        throw std::runtime_error("cannot write " + path_);
    }
    ::close(file);
}

TemporaryFile::~TemporaryFile() { ::unlink(path_.c_str()); }

std::shared_ptr<models::Model> model_of(const std::string& source, models::LoadOptions options) {
    torch::jit::Module module("M");
    module.register_parameter("weight", at::full({1}, 2.0), false);
    module.register_buffer("buffer", at::zeros({1}));
    module.register_attribute("last", c10::TensorType::get(), at::zeros({1}));
    module.register_attribute("count", c10::IntType::get(), 0);
    module.register_attribute("seen", c10::ListType::ofInts(), c10::List<std::int64_t>());
    module.define(source);
    const TemporaryFile file;
    module.save(file.path());
    return models::load_model("m", file.path(), options);
}

}  // namespace shared_tensor::test
