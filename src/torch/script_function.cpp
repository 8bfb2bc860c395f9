#include "torch/script_function.hpp"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/jit/runtime/jit_exception.h>

#include <algorithm>
#include <cstring>
#include <typeinfo>

#include <shared_tensor/detail/failure.hpp>
#include <shared_tensor/object.hpp>

#include "torch/load_model.hpp"
#include "torch/script_value.hpp"

namespace shared_tensor::models {

namespace {

constexpr const char* kInstance = "instance";

constexpr std::size_t kSelf = 1;  // index of the first argument after self

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

std::string type_of_instances(const std::string& model) { return "model." + model; }

constexpr std::string_view kTraceBegins = "The following operation failed in the TorchScript interpreter.";

/// The interpreter writes its trace first and the error itself on the last lines. The caller gets the first line of the
/// error of an operator; the log gets all of the text.
void cut_trace(CallFailure& failure) {
    static constexpr std::string_view kMark = "\nRuntimeError: ";
    std::string& text = failure.message;
    const std::string whole = text;
    const auto found = text.rfind(kMark);
    std::size_t end = std::string::npos;
    if (text.starts_with(kTraceBegins) && found != std::string::npos) {
        failure.type = "RuntimeError";
        text.erase(0, found + kMark.size());
        end = text.find('\n', text.find_first_not_of('\n'));
    }
    end = std::min({end, detail::end_of_message(text), text.size()});
    text.resize(end);
    if (text.size() < whole.size()) failure.details = detail::bounded_text(whole, detail::kMaxErrorDetails);
    while (!text.empty() && text.back() == '\n')
        text.pop_back();
    text = detail::bounded_text(text);
}

CallFailure raised(const torch::jit::JITException& error) {
    CallFailure failure;
    failure.type = error.getPythonClassName().value_or("RuntimeError");
    constexpr std::string_view kBuiltins = "builtins.";
    if (failure.type.starts_with(kBuiltins)) failure.type.erase(0, kBuiltins.size());
    failure.message = error.getOriginalMsg().value_or(std::string());
    if (failure.message.empty()) failure.message = detail::text_of(error);
    cut_trace(failure);
    if (detail::means_no_memory(failure.type, failure.message)) failure.kind = CallFailure::Kind::out_of_memory;
    return failure;
}

}  // namespace

CallFailure current_script_failure() noexcept {
    try {
        try {
            throw;
        } catch (const torch::jit::JITException& error) {
            return raised(error);
        } catch (const InvalidValue& error) {  // an invalid result: not the caller's fault
            CallFailure failure;
            failure.type = "shared_tensor::InvalidValue";
            failure.message = error.what();
            return failure;
        } catch (...) {
            CallFailure failure = detail::current_failure({}, std::string::npos);  // the error is at its end
            cut_trace(failure);
            return failure;
        }
    } catch (...) {
        return detail::current_failure_noexcept();
    }
}

ObjectPointer as_object(const std::string& model, const Instances& instances) {
    return std::make_shared<const ObjectCell>(
        ObjectCell{type_of_instances(model), {}, instances.make(), typeid(Instance).name()});
}

std::string rejection(const c10::FunctionSchema& schema) {
    if (schema.returns().size() != 1 || schema.arguments().empty()) return "it is no method of one result";
    for (std::size_t i = kSelf; i < schema.arguments().size(); ++i) {
        const c10::Argument& argument = schema.arguments()[i];
        const std::string what = rejection(*argument.type());
        if (!what.empty()) return "parameter " + argument.name() + " has the type " + what + ", which can't cross";
    }
    const std::string what = rejection(*schema.returns()[0].type());
    return what.empty() ? "" : "the result has the type " + what + ", which can't cross";
}

/// A call with its arguments.
class ScriptFunction::Bound final : public BoundCall {
public:
    Bound(const ScriptFunction& function, torch::jit::Stack arguments, std::shared_ptr<Instance> instance)
        : instances_(function.instances_),
          method_(function.method_),
          arguments_(std::move(arguments)),
          instance_(std::move(instance)) {}

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
        // Not InferenceMode, which is a little faster: its tensors have restrictions afterwards.
        const at::AutoGradMode grad(instances_->options().grad);
        if (instances_->stateless()) return invoke(instances_->loaded());
        const auto instance = instance_ != nullptr ? instance_ : instances_->find_or_make(session);
        const std::lock_guard turn(instance->turn);
        c10::IValue result = invoke(instance->module);
        // The next call may change the instance's state in place, before this result has been sent.
        return may_be_held(result) && result.overlaps(instance->module._ivalue()) ? result.deepcopy() : result;
    }

    /// False if the result cannot be a part of an instance's state. A quick look, since overlaps() visits all of it.
    static bool may_be_held(const c10::IValue& result) {
        if (!result.isTensor()) return true;
        const at::Tensor& tensor = result.toTensor();
        return !tensor.has_storage() || tensor.use_count() > 1 || tensor.storage().use_count() > 1;
    }

    c10::IValue invoke(const torch::jit::Module& module) {
        return torch::jit::Method(module._ivalue(), method_)(std::move(arguments_));
    }

    std::shared_ptr<Instances> instances_;
    torch::jit::Function* method_;
    torch::jit::Stack arguments_;
    std::shared_ptr<Instance> instance_;  // passed by the caller; null: the instance of its session
};

ScriptFunction::ScriptFunction(const std::string& model, torch::jit::Function& method,
                               std::shared_ptr<Instances> instances)
    : name_(model + "." + method.name()),
      where_("the model " + model),
      doc_("Method of the TorchScript model " + model + ": " + signature_of(method.getSchema())),
      object_type_(type_of_instances(model)),
      instances_(std::move(instances)),
      method_(&method) {
    options_.doc = doc_;
    options_.stateful = !instances_->stateless();
    options_.device = instances_->options().device;
    options_.dtype = instances_->options().dtype;
    options_.no_grad = !instances_->options().grad;
    options_.batch_rows = instances_->options().batch_rows;
    options_.batch_wait = instances_->options().batch_wait;
    const auto& arguments = method.getSchema().arguments();
    for (std::size_t i = kSelf; i < arguments.size(); ++i) {
        parameters_.push_back({arguments[i].name(), !arguments[i].default_value() && !is_optional(arguments[i])});
    }
    own_parameters_ = parameters_.size();
    const bool taken = std::any_of(parameters_.begin(), parameters_.end(),
                                   [](const ParameterInfo& parameter) { return parameter.name == kInstance; });
    if (!taken) parameters_.push_back({kInstance, false});
}

const c10::Argument& ScriptFunction::argument(std::size_t index) const {
    return method_->getSchema().arguments()[index + kSelf];
}

void ScriptFunction::parameter_schema(std::size_t index, ValueWriter schema) const {
    if (index < own_parameters_) return write_schema(schema, *argument(index).type());
    detail::write_object_schema(schema, object_type_, instances_->stateless() ? "concurrent" : "exclusive");
}
void ScriptFunction::default_value(std::size_t index, ValueWriter value) const {
    if (index >= own_parameters_) return value.null();
    if (const auto& given = argument(index).default_value()) write(value, *given);
}
void ScriptFunction::result_schema(ValueWriter schema) const {
    write_schema(schema, *method_->getSchema().returns()[0].type());
}

c10::IValue ScriptFunction::read_argument(std::size_t index, const ValueSource& source, ValueSource::Node node) const {
    if (node != nullptr) return read(ValueReader(source, node), *argument(index).type());
    return argument(index).default_value().value_or(c10::IValue());
}

std::shared_ptr<Instance> ScriptFunction::read_instance(const ValueSource& source, ValueSource::Node node) const {
    const ValueReader reader(source, node);
    if (reader.kind() == Kind::null) return nullptr;
    const std::string expected = "object of type " + object_type_;
    reader.require(Kind::handle, expected);
    const ObjectPointer object = reader.handle(instances_->stateless() ? Access::concurrent : Access::exclusive);
    if (object->type != object_type_ || std::strcmp(object->cpp_type, typeid(Instance).name()) != 0)
        reader.fail(expected, "an object of type " + object->type);
    auto* const instance = static_cast<Instance*>(object->value.get());
    if (!instances_->made(*instance))
        reader.fail(expected, "one of the model that had this name before: make another with model.create");
    return {object, instance};
}

Binding ScriptFunction::bind(const ValueSource& source, std::span<const ValueSource::Node> nodes) const noexcept {
    std::size_t reading = 0;
    try {
        torch::jit::Stack arguments;
        arguments.reserve(nodes.size() + kSelf);
        for (; reading < own_parameters_; ++reading) {
            if (nodes[reading] == nullptr && parameters_[reading].required)
                throw InvalidValue({}, "a value", "nothing");
            arguments.push_back(read_argument(reading, source, nodes[reading]));
        }
        std::shared_ptr<Instance> instance;
        if (takes_instance() && nodes[reading] != nullptr) instance = read_instance(source, nodes[reading]);
        return {std::make_unique<Bound>(*this, std::move(arguments), std::move(instance)), std::nullopt};
    } catch (...) {
        return {nullptr,
                detail::current_failure_noexcept(reading < parameters_.size() ? parameters_[reading].name : name_)};
    }
}

}  // namespace shared_tensor::models
