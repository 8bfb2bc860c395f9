#pragma once

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <typeinfo>

#include <shared_tensor/function.hpp>
#include <shared_tensor/stream.hpp>

namespace shared_tensor::detail {

inline std::string demangled(const char* name) {
    int status = 0;
    const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(name, nullptr, nullptr, &status),
                                                           &std::free);
    return status == 0 && text ? text.get() : name;
}

/// Without the stack, file names and addresses that libtorch appends to its messages: they are nothing for a caller.
inline std::string without_stack(std::string message) {
    message.resize(std::min({message.find("\nException raised from "), message.find("\nframe #0: "), message.size()}));
    return message;
}

/// libtorch has words of its own for it, known here by name since this header needs no torch.
inline bool means_no_memory(const std::string& type, const std::string& message) {
    return type == "c10::OutOfMemoryError" ||
           message.find("DefaultCPUAllocator: can't allocate memory") != std::string::npos;
}

/// Describes the exception that is being handled; call it inside a catch clause only.
inline CallFailure current_failure(const std::string& parameter = {}) {
    CallFailure failure;
    try {
        throw;
    } catch (const InvalidValue& error) {
        failure.kind = CallFailure::Kind::invalid_params;
        const bool needs_dot = !parameter.empty() && !error.path.empty() && error.path[0] != '[';
        failure.parameter = parameter + (needs_dot ? "." : "") + error.path;
        failure.expected = error.expected;
        failure.got = error.got;
        failure.item = dynamic_cast<const BadItem*>(&error) != nullptr;
    } catch (const CancelledError&) {
        failure.kind = CallFailure::Kind::cancelled;
    } catch (const std::bad_alloc&) {
        failure.kind = CallFailure::Kind::out_of_memory;
    } catch (const std::exception& error) {
        failure.type = demangled(typeid(error).name());
        failure.message = without_stack(error.what());
        if (means_no_memory(failure.type, failure.message)) failure.kind = CallFailure::Kind::out_of_memory;
    } catch (...) {
        const std::type_info* type = abi::__cxa_current_exception_type();
        failure.type = type != nullptr ? demangled(type->name()) : "unknown";
        failure.message = "not a std::exception";
    }
    return failure;
}

/// The same, when even describing it may run out of memory.
inline CallFailure current_failure_noexcept(const std::string& parameter = {}) noexcept {
    try {
        return current_failure(parameter);
    } catch (...) {
        CallFailure failure;
        failure.kind = CallFailure::Kind::out_of_memory;
        return failure;
    }
}

}  // namespace shared_tensor::detail
