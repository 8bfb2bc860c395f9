#include "torch/script_failure.hpp"

#include <torch/csrc/jit/runtime/jit_exception.h>

#include <shared_tensor/detail/failure.hpp>

namespace shared_tensor::models {

namespace {

constexpr std::string_view kTraceBegins = "The following operation failed in the TorchScript interpreter.";

/// The interpreter writes its trace first and the error itself on the last lines.
void cut_trace(CallFailure& failure) {
    static constexpr std::string_view kMark = "\nRuntimeError: ";
    std::string& text = failure.message;
    const auto found = text.rfind(kMark);
    if (text.starts_with(kTraceBegins) && found != std::string::npos) {
        failure.type = "RuntimeError";
        text.erase(0, found + kMark.size());
    }
    const std::size_t end = detail::end_of_message(text);
    if (end < text.size()) failure.details = detail::bounded_text(std::string_view(text).substr(end));
    text.resize(end);
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

}  // namespace shared_tensor::models
