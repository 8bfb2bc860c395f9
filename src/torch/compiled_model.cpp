#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <nlohmann/json.hpp>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shared_tensor/codecs.hpp>
#include <shared_tensor/detail/failure.hpp>
#include <shared_tensor/object.hpp>
#include <shared_tensor/torch.hpp>

#include "torch/load_model.hpp"

namespace shared_tensor::models {

namespace {

using Json = nlohmann::json;

/// How the tensors of a compiled model's arguments or result are arranged in lists and objects: PyTorch's "treespec" as
/// JSON (torch.utils._pytree.treespec_dumps). The leaves are tensors, in order.
struct CallSpec {
    enum class Kind { tensor, list, object };
    Kind kind = Kind::tensor;
    std::vector<std::string> keys{};  ///< keys of an object
    std::vector<CallSpec> children{};
    std::size_t tensors = 1;  ///< number of leaves
};

CallSpec spec_of(const Json& node) {
    const Json& type = node.at("type");
    if (type.is_null()) return {};
    CallSpec spec{CallSpec::Kind::list, {}, {}, 0};
    const auto name = type.get<std::string>();
    if (name == "builtins.dict") {
        spec.kind = CallSpec::Kind::object;
        for (const Json& key : Json::parse(node.at("context").get<std::string>()))
            spec.keys.push_back(key.get<std::string>());
    } else if (name != "builtins.tuple" && name != "builtins.list") {
        throw std::invalid_argument("a value of the type " + name);
    }
    for (const Json& child : node.at("children_spec")) {
        spec.children.push_back(spec_of(child));
        spec.tensors += spec.children.back().tensors;
    }
    if (spec.kind == CallSpec::Kind::object && spec.keys.size() != spec.children.size())
        throw std::invalid_argument("a dict whose keys are not told");
    return spec;
}

/// Throws std::invalid_argument that names the unsupported part.
CallSpec parse_call_spec(const std::string& json) {
    try {
        return spec_of(Json::parse(json).at(1));  // [version, spec]
    } catch (const Json::exception& error) {
        throw std::invalid_argument(std::string("a form of arguments that is not known: ") + error.what());
    }
}

/// Throws InvalidValue.
void read_tensors(const ValueReader& reader, const CallSpec& spec, std::vector<at::Tensor>& tensors) {
    if (spec.kind == CallSpec::Kind::tensor) return tensors.push_back(Codec<at::Tensor>::read(reader).contiguous());
    const bool is_list = spec.kind == CallSpec::Kind::list;
    if (is_list && (reader.kind() != Kind::array || reader.size() != spec.children.size()))
        reader.fail("array of " + std::to_string(spec.children.size()));
    if (!is_list) reader.require(Kind::object, "object");
    for (std::size_t i = 0; i < spec.children.size(); ++i) {
        if (!is_list && !reader.has(spec.keys[i])) reader.fail("object with \"" + spec.keys[i] + '"');
        read_tensors(is_list ? reader.element(i) : reader.member(spec.keys[i]), spec.children[i], tensors);
    }
}

/// Writes from tensors[next] on, and advances `next`.
void write_tensors(ValueWriter writer, const CallSpec& spec, const std::vector<at::Tensor>& tensors,
                   std::size_t& next) {
    if (spec.kind == CallSpec::Kind::tensor) {
        const at::Tensor& tensor = tensors.at(next++);
        return tensor.defined() ? writer.tensor(tensor) : writer.null();
    }
    const bool is_list = spec.kind == CallSpec::Kind::list;
    is_list ? writer.array(spec.children.size()) : writer.object();
    for (std::size_t i = 0; i < spec.children.size(); ++i)
        write_tensors(is_list ? writer.append() : writer.member(spec.keys[i]), spec.children[i], tensors, next);
}

void write_spec_schema(ValueWriter writer, const CallSpec& spec) {
    if (spec.kind == CallSpec::Kind::tensor) return Codec<at::Tensor>::schema(writer);
    const bool is_list = spec.kind == CallSpec::Kind::list;
    detail::write_type(writer, is_list ? "array" : "object");
    ValueWriter parts = writer.member(is_list ? "prefixItems" : "properties");
    is_list ? parts.array(spec.children.size()) : parts.object();
    for (std::size_t i = 0; i < spec.children.size(); ++i)
        write_spec_schema(is_list ? parts.append() : parts.member(spec.keys[i]), spec.children[i]);
}

/// The compiled code is linked to libtorch.so, which only refers to other libraries. The code has no path to it, so
/// libtorch.so must be loaded before. Throws std::runtime_error.
void load_libtorch_beside_us() {
    Dl_info torch{};
    if (::dladdr(reinterpret_cast<const void*>(&at::set_num_threads), &torch) == 0) return;
    const std::string path = torch.dli_fname;
    const std::string file = path.substr(0, path.rfind('/') + 1) + "libtorch.so";
    if (::dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) return;
    const char* const why = ::dlerror();
    throw std::runtime_error(why != nullptr ? why : file);
}

/// The compiled code with the types of its arguments and result.
struct Package {
    explicit Package(const std::string& path) : loader(path) {
        const std::vector<std::string> specs = loader.get_call_spec();
        const CallSpec in = parse_call_spec(specs.at(0));  // (positional arguments, {name: argument})
        check_number_of_tensors(in.tensors);
        result = parse_call_spec(specs.at(1));
        for (const CallSpec& argument : in.children.at(0).children) {
            names.push_back("arg" + std::to_string(names.size()));
            arguments.push_back(argument);
        }
        const CallSpec& named = in.children.at(1);
        names.insert(names.end(), named.keys.begin(), named.keys.end());
        arguments.insert(arguments.end(), named.children.begin(), named.children.end());
    }

    torch::inductor::AOTIModelPackageLoader loader;
    std::vector<std::string> names;
    std::vector<CallSpec> arguments;
    CallSpec result;

private:
    /// An argument that was no tensor when the model was exported, such as None or a number, is a constant of the code,
    /// but it is among the arguments all the same. libtorch tells how many tensors the code takes only in the error of
    /// a call. Throws std::invalid_argument.
    void check_number_of_tensors(std::size_t expected) {
        constexpr std::string_view kBefore = "vector size to be ";
        if (expected == 0) return;
        std::string error;
        try {
            (void)loader.boxed_run({});
        } catch (const std::exception& rejected) {
            error = rejected.what();
        }
        const auto at = error.find(kBefore);
        if (at == std::string::npos || std::strtoull(error.c_str() + at + kBefore.size(), nullptr, 10) == expected)
            return;
        throw std::invalid_argument("it was exported with an argument that is no tensor, such as None or a number");
    }
};

/// The function NAME.forward. The compiled code has one set of buffers, so calls run one after another; later ones wait
/// in the queue.
class CompiledFunction final : public FunctionRecord {
public:
    CompiledFunction(const std::string& model, std::shared_ptr<Package> package, const LoadOptions& load)
        : name_(model + ".forward"),
          where_("the model " + model),
          doc_("The compiled model " + model + "."),
          device_(load.device),
          package_(std::move(package)) {
        options_.doc = doc_;
        options_.concurrency = 1;
        options_.no_grad = true;
        options_.device = device_;
        options_.batch_rows = load.batch_rows;
        options_.batch_wait = load.batch_wait;
        for (const std::string& name : package_->names)
            parameters_.push_back({name, true});
    }

    std::string_view name() const override { return name_; }
    const FunctionOptions& options() const override { return options_; }
    std::string where() const override { return where_; }
    std::span<const ParameterInfo> parameters() const override { return parameters_; }
    void parameter_schema(std::size_t index, ValueWriter schema) const override {
        write_spec_schema(schema, package_->arguments[index]);
    }
    void default_value(std::size_t, ValueWriter value) const override { value.null(); }
    void result_schema(ValueWriter schema) const override { write_spec_schema(schema, package_->result); }

    Binding bind(const ValueSource& source, std::span<const ValueSource::Node> nodes) const noexcept override {
        std::size_t reading = 0;
        try {
            std::vector<at::Tensor> tensors;
            for (; reading < parameters_.size(); ++reading) {
                if (nodes[reading] == nullptr) throw InvalidValue({}, "a value", "nothing");
                read_tensors(ValueReader(source, nodes[reading]), package_->arguments[reading], tensors);
            }
            return {std::make_unique<Bound>(package_, std::move(tensors)), std::nullopt};
        } catch (...) {
            return {nullptr, detail::current_failure_noexcept(parameters_[reading].name)};
        }
    }

private:
    class Bound final : public BoundCall {
    public:
        Bound(std::shared_ptr<Package> package, std::vector<at::Tensor> tensors)
            : package_(std::move(package)), tensors_(std::move(tensors)) {}
        std::optional<CallFailure> run(Context& context, ValueWriter result) noexcept override {
            try {
                context.check_cancelled();
                const at::NoGradGuard no_grad;
                const auto made = package_->loader.boxed_run(std::move(tensors_));
                if (made.size() != package_->result.tensors)
                    throw std::logic_error("the compiled model gave another number of tensors than it says");
                std::size_t next = 0;
                write_tensors(result, package_->result, made, next);
                return std::nullopt;
            } catch (...) {
                CallFailure failure = current_script_failure();
                if (failure.message.starts_with("run_func_("))  // libtorch's text has no reason
                    failure.message =
                        "the compiled model failed, usually because the dtype, the size or the strides of an argument "
                        "are not those for which it was compiled: the server's standard error has the reason";
                return failure;
            }
        }

    private:
        const std::shared_ptr<Package> package_;
        std::vector<at::Tensor> tensors_;
    };

    const std::string name_, where_, doc_, device_;
    const std::shared_ptr<Package> package_;
    FunctionOptions options_;
    std::vector<ParameterInfo> parameters_;
};

class CompiledModel final : public Model {
public:
    CompiledModel(const std::string& name, std::shared_ptr<Package> package, const LoadOptions& options)
        : functions_{std::make_shared<CompiledFunction>(name, std::move(package), options)} {}

    const std::vector<std::shared_ptr<const FunctionRecord>>& functions() const override { return functions_; }
    ObjectPointer create() const override { return nullptr; }
    const std::vector<std::string>& left_out() const override { return left_out_; }
    ModelSize size() const override { return {}; }
    void session_closed(std::string_view) override {}
    std::size_t instances() const override { return 0; }

private:
    const std::vector<std::shared_ptr<const FunctionRecord>> functions_;
    const std::vector<std::string> left_out_;
};

}  // namespace

std::shared_ptr<Model> load_compiled_model(const std::string& name, const std::string& path,
                                           const LoadOptions& options) {
    if (!options.dtype.empty() || options.grad || options.state == State::deep || options.state == State::shared)
        throw LoadError(name, path,
                        "is compiled: it keeps its dtypes and has no state and no autograd, so dtype=, grad=yes, "
                        "stateful=deep and stateful=shared mean nothing to it");
    // Makes the code check the dtypes and shapes of its inputs. Otherwise it would read beyond the end of an input that
    // is too small.
    ::setenv("AOTI_RUNTIME_CHECK_INPUTS", "1", 1);
    try {
        load_libtorch_beside_us();
        return std::make_shared<CompiledModel>(name, std::make_shared<Package>(path), options);
    } catch (const std::exception& error) {
        std::string why = detail::without_stack(error.what());
        why = why.substr(0, why.find('\n'));
        throw LoadError(name, path,
                        "is no compiled model that this libtorch (" SHARED_TENSOR_TORCH_VERSION ") loads: " + why);
    }
}

}  // namespace shared_tensor::models
