#include "models/model.hpp"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/jit/serialization/import.h>

#include <filesystem>
#include <fstream>
#include <new>
#include <stdexcept>
#include <typeinfo>
#include <unordered_set>

#include <shared_tensor/detail/failure.hpp>

#include "models/instances.hpp"
#include "models/script_function.hpp"
#include "tensor/dtype.hpp"
#include "tensor/placement.hpp"

namespace shared_tensor::models {

namespace {

void add(ModelSize& size, const at::Tensor& tensor) {
    size.parameters += static_cast<std::size_t>(tensor.numel());
    size.bytes += tensor.nbytes();
}

ModelSize size_of(const torch::jit::Module& module) {
    ModelSize size;
    std::unordered_set<const c10::TensorImpl*> seen;  // weights may be tied
    const auto add_all = [&](const auto& tensors) {
        for (const at::Tensor& tensor : tensors) {
            if (!tensor.defined() || !seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
            if (tensor.layout() == at::kStrided) {
                add(size, tensor);
            } else if (tensor.layout() == at::kSparse) {
                add(size, tensor._values());
                add(size, tensor._indices());
            }
        }
    };
    add_all(module.parameters());
    add_all(module.buffers());
    return size;
}

}  // namespace

class Model::Impl {
public:
    Impl(std::string name, torch::jit::Module module, LoadOptions options, SessionIsOpen is_open)
        : name_(std::move(name)),
          size_(size_of(module)),
          instances_(std::make_shared<Instances>(std::move(module), std::move(options), std::move(is_open))) {
        for (const torch::jit::Method& method : instances_->loaded().get_methods())
            add(method);
    }

    std::string name_;
    ModelSize size_;
    std::shared_ptr<Instances> instances_;
    std::vector<std::shared_ptr<const SharedFunction>> functions_;
    std::vector<std::string> left_out_;

private:
    void add(const torch::jit::Method& method) {
        if (method.name().starts_with('_')) return;  // private, as in Python
        if (std::string why = obstacle(method.function().getSchema()); !why.empty()) {
            left_out_.push_back(method.name() + ": " + why);
        } else {
            functions_.push_back(std::make_shared<ScriptFunction>(name_, method.function(), instances_));
        }
    }
};

Model::Model(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Model::~Model() = default;

const std::string& Model::name() const { return impl_->name_; }
const std::vector<std::shared_ptr<const SharedFunction>>& Model::functions() const { return impl_->functions_; }
const std::vector<std::string>& Model::left_out() const { return impl_->left_out_; }

ObjectPointer Model::create() const { return as_object(name(), *impl_->instances_); }

void Model::session_closed(std::string_view session) { impl_->instances_->erase(session); }

ModelSize Model::size() const { return impl_->size_; }

std::size_t Model::instances() const { return impl_->instances_->size(); }

namespace {

/// The first line that says something: some messages of libtorch begin with empty ones.
std::string first_line(const std::string& text) {
    const auto begin = text.find_first_not_of(" \t\r\n");
    return begin == std::string::npos ? "" : text.substr(begin, text.find('\n', begin) - begin);
}

[[noreturn]] void refuse(const std::string& name, const std::string& path, const std::string& why) {
    throw LoadError(name, path, why);
}

/// What libtorch would say in many words.
void check_file(const std::string& name, const std::string& path) {
    std::error_code error;
    const auto status = std::filesystem::status(path, error);
    if (!std::filesystem::exists(status)) refuse(name, path, "does not exist");
    if (!std::filesystem::is_regular_file(status)) refuse(name, path, "is no regular file");
    std::ifstream file(path, std::ios::binary);
    if (!file) refuse(name, path, "can't be read: check its permissions");
    char magic[2]{};
    if (!file.read(magic, 2) || magic[0] != 'P' || magic[1] != 'K')
        refuse(name, path, "is no TorchScript file: torch.jit.save makes one");
}

/// Module::to() would make indices and masks into such numbers too.
void convert(torch::jit::Module& module, at::ScalarType dtype) {
    const at::NoGradGuard no_grad;
    const auto all = [&](const auto& tensors) {
        for (at::Tensor tensor : tensors) {
            if (tensor.is_floating_point()) tensor.set_data(tensor.to(dtype));
        }
    };
    all(module.parameters());
    all(module.buffers());
}

/// Where it is to run, and in which numbers.
void place(torch::jit::Module& module, const LoadOptions& options) {
    if (!options.device.empty()) module.to(c10::Device(options.device));
    if (const auto dtype = options.dtype.empty() ? std::nullopt : tensor::parse_dtype(options.dtype))
        convert(module, tensor::scalar_type(*dtype));
}

torch::jit::Module load_module(const std::string& name, const std::string& path, const LoadOptions& options) {
    check_file(name, path);
    if (const auto fault = tensor::fault_of_placement(options.device, options.dtype); !fault.empty())
        refuse(name, path, "cannot be loaded: " + fault);
    const char* what = "is no TorchScript file that this libtorch reads: ";
    try {
        torch::jit::Module module = torch::jit::load(path, at::kCPU);
        what = "cannot be put where it is to run: ";
        module.eval();
        place(module, options);
        return module;
    } catch (const std::exception& error) {
        std::string words = first_line(detail::without_stack(error.what()));
        if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
            detail::means_no_memory(detail::demangled(typeid(error).name()), words))
            throw LoadError(name, path, "does not fit into memory", LoadError::Kind::no_memory);
        if (words.empty()) words = "libtorch gives no reason (" + detail::demangled(typeid(error).name()) + ')';
        if (const auto at = words.find(path); at != std::string::npos) words.replace(at, path.size(), "it");
        refuse(name, path, what + words);
    }
}

}  // namespace

std::shared_ptr<Model> load_model(std::string name, const std::string& path, LoadOptions options,
                                  SessionIsOpen is_open) {
    auto module = load_module(name, path, options);
    std::shared_ptr<Model> model(new Model(
        std::make_unique<Model::Impl>(std::move(name), std::move(module), std::move(options), std::move(is_open))));
    if (model->functions().empty()) {
        refuse(
            model->name(), path,
            "has no method that can be shared" + (model->left_out().empty() ? "" : " (" + model->left_out()[0] + ")"));
    }
    return model;
}

}  // namespace shared_tensor::models
