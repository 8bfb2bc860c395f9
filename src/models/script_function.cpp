#include "models/script_function.hpp"

#include <ATen/core/grad_mode.h>

#include <shared_tensor/detail/failure.hpp>

#include "models/script_failure.hpp"
#include "models/script_value.hpp"

namespace shared_tensor::models {

namespace {

constexpr std::size_t kSelf = 1;  // a method's first argument

bool is_optional(const c10::Argument& argument) { return argument.type()->kind() == c10::TypeKind::OptionalType; }

/// "forward(x: Tensor, sr: int) -> Tensor"
std::string signature_of(const c10::FunctionSchema& schema) {
    std::string text = schema.name() + "(";
    for (std::size_t i = kSelf; i < schema.arguments().size(); ++i) {
        const c10::Argument& argument = schema.arguments()[i];
        text.append(i == kSelf ? "" : ", ").append(argument.name()).append(": ").append(argument.type()->repr_str());
    }
    return text + ") -> " + schema.returns().at(0).type()->repr_str();
}

CallFailure missing(const std::string& parameter) {
    CallFailure failure;
    failure.kind = CallFailure::Kind::invalid_params;
    failure.parameter = parameter;
    failure.expected = "a value: the parameter is required";
    failure.got = "nothing";
    return failure;
}

}  // namespace

std::string obstacle(const c10::FunctionSchema& schema) {
    if (schema.returns().size() != 1 || schema.arguments().empty()) return "it is no method of one result";
    for (std::size_t i = kSelf; i < schema.arguments().size(); ++i) {
        const c10::Argument& argument = schema.arguments()[i];
        const std::string what = obstacle(*argument.type());
        if (!what.empty()) return "parameter " + argument.name() + " has the type " + what + ", which can't cross";
    }
    const std::string what = obstacle(*schema.returns()[0].type());
    return what.empty() ? "" : "the result has the type " + what + ", which can't cross";
}

/// A call with its arguments.
class ScriptFunction::Bound final : public BoundCall {
public:
    Bound(const ScriptFunction& function, torch::jit::Stack arguments)
        : instances_(function.instances_), method_(function.method_), arguments_(std::move(arguments)) {}

    std::optional<CallFailure> run(Context& context, ValueWriter result) noexcept override {
        try {
            context.check_cancelled();
            write(result, call(context.caller().session));
            return std::nullopt;
        } catch (...) {
            return current_script_failure();
        }
    }

private:
    c10::IValue call(std::string_view session) {
        // Not InferenceMode, which is a little faster: tensors made under it can't be used freely afterwards.
        const at::NoGradGuard no_grad;
        if (instances_->stateless()) return invoke(instances_->loaded());
        const auto instance = instances_->find_or_make(session);
        const std::lock_guard turn(instance->turn);
        return invoke(instance->module);
    }

    c10::IValue invoke(const torch::jit::Module& module) {
        return torch::jit::Method(module._ivalue(), method_)(std::move(arguments_));
    }

    std::shared_ptr<Instances> instances_;
    torch::jit::Function* method_;
    torch::jit::Stack arguments_;
};

ScriptFunction::ScriptFunction(const std::string& model, torch::jit::Function& method,
                               std::shared_ptr<Instances> instances)
    : name_(model + "." + method.name()),
      where_("the model " + model),
      doc_("Method of the TorchScript model " + model + ": " + signature_of(method.getSchema())),
      instances_(std::move(instances)),
      method_(&method) {
    options_.doc = doc_;
    options_.stateful = !instances_->stateless();
    const auto& arguments = method.getSchema().arguments();
    for (std::size_t i = kSelf; i < arguments.size(); ++i) {
        parameters_.push_back({arguments[i].name(), !arguments[i].default_value() && !is_optional(arguments[i])});
    }
}

const c10::Argument& ScriptFunction::argument(std::size_t index) const {
    return method_->getSchema().arguments()[index + kSelf];
}

void ScriptFunction::parameter_schema(std::size_t index, ValueWriter schema) const {
    write_schema(schema, *argument(index).type());
}
void ScriptFunction::default_value(std::size_t index, ValueWriter value) const {
    if (const auto& given = argument(index).default_value()) write(value, *given);
}
void ScriptFunction::result_schema(ValueWriter schema) const {
    write_schema(schema, *method_->getSchema().returns()[0].type());
}

c10::IValue ScriptFunction::read_argument(std::size_t index, const ValueSource& source, ValueSource::Node node) const {
    if (node != nullptr) return read(ValueReader(source, node), *argument(index).type());
    return argument(index).default_value().value_or(c10::IValue());
}

Binding ScriptFunction::bind(const ValueSource& source, std::span<const ValueSource::Node> nodes) const noexcept {
    std::size_t reading = 0;
    try {
        torch::jit::Stack arguments;
        arguments.reserve(nodes.size() + kSelf);
        for (; reading < parameters_.size(); ++reading) {
            if (nodes[reading] == nullptr && parameters_[reading].required)
                return {nullptr, missing(parameters_[reading].name)};
            arguments.push_back(read_argument(reading, source, nodes[reading]));
        }
        return {std::make_unique<Bound>(*this, std::move(arguments)), std::nullopt};
    } catch (...) {
        return {nullptr,
                detail::current_failure_noexcept(reading < parameters_.size() ? parameters_[reading].name : name_)};
    }
}

}  // namespace shared_tensor::models
