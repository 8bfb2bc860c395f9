#include "torch/load_model.hpp"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <new>
#include <stdexcept>
#include <typeinfo>
#include <unordered_set>

#include <shared_tensor/detail/failure.hpp>
#include <shared_tensor/torch.hpp>

#include "torch/script_function.hpp"

namespace shared_tensor::models {

namespace {

/// All tensor attributes of the module and its submodules. Does not look into containers.
void collect_tensors(const torch::jit::Module& module, std::vector<at::Tensor>& tensors) {
    for (const torch::jit::Module& part : module.modules()) {
        for (const c10::IValue& slot : part._ivalue()->slots()) {
            if (slot.isTensor() && slot.toTensor().defined()) tensors.push_back(slot.toTensor());
        }
    }
}

std::vector<at::Tensor> common_tensors(const torch::jit::Module& module, State state) {
    std::vector<at::Tensor> tensors;
    if (state == State::shared) collect_tensors(module, tensors);
    if (state == State::copied) {
        for (const at::Tensor& parameter : module.parameters())
            tensors.push_back(parameter);
    }
    return tensors;
}

}  // namespace

Instances::Instances(torch::jit::Module loaded, LoadOptions options, SessionIsOpen is_open)
    : loaded_(std::move(loaded)),
      options_(std::move(options)),
      is_open_(std::move(is_open)),
      common_(common_tensors(loaded_, options_.state)) {}

std::shared_ptr<Instance> Instances::make() const {
    if (stateless()) return std::make_shared<Instance>(loaded_, kin_);
    // deepcopy() uses tensors of the memo instead of copying them.
    c10::IValue::HashIdentityIValueMap memo;
    for (const at::Tensor& tensor : common_)
        memo.emplace(tensor, tensor);
    return std::make_shared<Instance>(torch::jit::Module(c10::IValue(loaded_._ivalue()).deepcopy(memo).toObject()),
                                      kin_);
}

std::shared_ptr<Instance> Instances::find_or_make(std::string_view session) {
    if (session.empty()) return make();
    const auto find = [&](const Map& sessions) {
        const auto found = sessions.find(session);
        return found == sessions.end() ? nullptr : found->second;
    };
    if (auto known = sessions_.with(find)) return known;
    const auto made = make();  // without the lock: it copies tensors
    auto kept = sessions_.with([&](Map& sessions) {
        if (auto known = find(sessions)) return known;
        if (sessions.size() >= options_.max_instances) {
            throw std::runtime_error(std::to_string(options_.max_instances) +
                                     " sessions hold an instance of this model already: " +
                                     "close one that is not used any more (session.close), or call without a session");
        }
        return sessions.emplace(session, made).first->second;
    });
    // A call can outlive its session, so the session may have ended before this: erase() found no instance then.
    if (is_open_ && !is_open_(std::string(session))) erase(session);
    return kept;
}

void Instances::erase(std::string_view session) {
    const auto last = sessions_.with([&](Map& sessions) {  // destroyed after the lock is released
        const auto found = sessions.find(session);
        return found == sessions.end() ? Map::node_type() : sessions.extract(found);
    });
}

std::size_t Instances::size() const {
    return sessions_.with([](const Map& sessions) { return sessions.size(); });
}

namespace {

void add(ModelSize& size, const at::Tensor& tensor) {
    size.parameters += static_cast<std::size_t>(tensor.numel());
    size.bytes += tensor.nbytes();
}

ModelSize size_of(const torch::jit::Module& module) {
    ModelSize size;
    std::unordered_set<const c10::TensorImpl*> seen;  // several parameters may be the same tensor
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

class ScriptModel final : public Model {
public:
    ScriptModel(std::string name, torch::jit::Module module, const LoadOptions& options, const SessionIsOpen& is_open)
        : name_(std::move(name)),
          size_(size_of(module)),
          instances_(std::make_shared<Instances>(std::move(module), options, is_open)) {
        for (const torch::jit::Method& method : instances_->loaded().get_methods())
            add(method);
    }

    const std::vector<std::shared_ptr<const FunctionRecord>>& functions() const override { return functions_; }
    const std::vector<std::string>& left_out() const override { return left_out_; }
    ObjectPointer create() const override { return as_object(name_, *instances_); }
    void session_closed(std::string_view session) override { instances_->erase(session); }
    ModelSize size() const override { return size_; }
    std::size_t instances() const override { return instances_->size(); }

private:
    void add(const torch::jit::Method& method) {
        if (method.name().starts_with('_')) return;  // private, as in Python
        if (std::string why = rejection(method.function().getSchema()); !why.empty()) {
            left_out_.push_back(method.name() + ": " + why);
        } else {
            functions_.push_back(std::make_shared<ScriptFunction>(name_, method.function(), instances_));
        }
    }

    const std::string name_;
    const ModelSize size_;
    const std::shared_ptr<Instances> instances_;
    std::vector<std::shared_ptr<const FunctionRecord>> functions_;
    std::vector<std::string> left_out_;
};

/// The first line that is not empty: some messages of libtorch begin with empty lines.
std::string first_line(const std::string& text) {
    const auto begin = text.find_first_not_of(" \t\r\n");
    return begin == std::string::npos ? "" : text.substr(begin, text.find('\n', begin) - begin);
}

[[noreturn]] void reject(const std::string& name, const std::string& path, const std::string& why) {
    throw LoadError(name, path, why);
}

/// Detects common errors, which libtorch would report at great length.
void check_file(const std::string& name, const std::string& path) {
    std::error_code error;
    const auto status = std::filesystem::status(path, error);
    if (!std::filesystem::exists(status)) reject(name, path, "does not exist");
    if (!std::filesystem::is_regular_file(status)) reject(name, path, "is no regular file");
    std::ifstream file(path, std::ios::binary);
    if (!file) reject(name, path, "can't be read: check its permissions");
    char magic[2]{};
    if (!file.read(magic, 2) || magic[0] != 'P' || magic[1] != 'K')
        reject(name, path, "is no TorchScript file: torch.jit.save makes one");
}

/// Converts floating-point tensors only. Module::to() would convert indices and masks too.
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

bool has_weights(const torch::jit::Block& block) {
    for (const torch::jit::Node* node : block.nodes()) {
        if (node->kind() == c10::prim::Constant && node->output()->type()->kind() == c10::TypeKind::TensorType) {
            const at::Tensor& tensor = node->t(c10::attr::value);
            if (tensor.is_floating_point() && tensor.dim() > 0) return true;
        }
        for (const torch::jit::Block* inner : node->blocks())
            if (has_weights(*inner)) return true;
    }
    return false;
}

/// Whether the weights are constants of the code, which torch.jit.freeze makes of them.
bool is_frozen(const torch::jit::Module& module) {
    if (module.parameters().size() + module.buffers().size() > 0) return false;
    const auto methods = module.get_methods();
    return std::any_of(methods.begin(), methods.end(),
                       [](const torch::jit::Method& method) { return has_weights(*method.graph()->block()); });
}

/// Moves the module to the device and converts it to the dtype of `options`.
void place(torch::jit::Module& module, const LoadOptions& options) {
    const bool moves = !options.device.empty() && options.device != "cpu";
    if ((moves || !options.dtype.empty()) && is_frozen(module))
        throw std::invalid_argument(
            "its weights are constants (torch.jit.freeze), which device= and dtype= cannot change: convert the model "
            "before you freeze it");
    if (!options.device.empty()) module.to(c10::Device(options.device));
    if (const auto dtype = options.dtype.empty() ? std::nullopt : parse_dtype(options.dtype))
        convert(module, scalar_type(*dtype));
}

torch::jit::Module load_module(const std::string& name, const std::string& path, const LoadOptions& options) {
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
        reject(name, path, what + words);
    }
}

}  // namespace

std::shared_ptr<Model> load_model(const std::string& name, const std::string& path, const LoadOptions& options,
                                  const SessionIsOpen& is_open) {
    check_file(name, path);
    if (is_compiled(path)) return load_compiled_model(name, path, options);
    auto model = std::make_shared<ScriptModel>(name, load_module(name, path, options), options, is_open);
    if (model->functions().empty()) {
        reject(
            name, path,
            "has no method that can be shared" + (model->left_out().empty() ? "" : " (" + model->left_out()[0] + ")"));
    }
    return model;
}

}  // namespace shared_tensor::models
