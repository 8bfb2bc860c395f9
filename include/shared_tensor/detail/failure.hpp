#pragma once

#include <cxxabi.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <typeinfo>

#include <shared_tensor/function.hpp>
#include <shared_tensor/stream.hpp>

namespace shared_tensor::detail {

/// Limit of an error's text, in bytes. The text of an exception can have any size.
inline constexpr std::size_t kMaxErrorText = 4096;

/// Returns `text`, or its beginning and a remark that it was cut. At most `most` bytes; never cuts a UTF-8 character.
inline std::string bounded_text(std::string_view text, std::size_t most = kMaxErrorText) {
    if (text.size() <= most) return std::string(text);
    const std::string remark = " ... (cut: the text has " + std::to_string(text.size()) + " bytes)";
    std::size_t end = most - (remark.size() < most ? remark.size() : most);
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80)
        --end;
    return std::string(text.substr(0, end)) + remark;
}

inline std::string demangled(const char* name) {
    int status = 0;
    const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(name, nullptr, nullptr, &status),
                                                           &std::free);
    return status == 0 && text ? text.get() : name;
}

/// Limit of the part of an error's text that only the log gets, in bytes.
inline constexpr std::size_t kMaxErrorDetails = std::size_t{64} << 10;

/// The length of the part of `text` that a caller can use. libtorch appends stacks and the list of an operator's
/// kernels, with file names and addresses: several kilobytes.
inline std::size_t end_of_message(std::string_view text) {
    std::size_t end = text.size();
    for (const std::string_view mark : {"\nException raised from ", "\nframe #0: ", "\nC++ CapturedTraceback:"})
        end = std::min(end, text.find(mark));
    const std::size_t kernel = std::min(text.find(": registered at "), text.find(": fallthrough registered at "));
    return kernel == std::string_view::npos ? end : std::min(end, text.rfind("\n\n", kernel));
}

/// The part of an exception's text for callers. The first line of libtorch's own errors says what is wrong; the lines
/// behind it are advice and stacks.
inline std::string_view part_for_callers(std::string_view type, std::string_view text) {
    text = text.substr(0, end_of_message(text));
    if (!type.starts_with("c10::") && !type.starts_with("torch::")) return text;
    text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
    return text.substr(0, text.find('\n'));
}

inline std::string without_stack(std::string message) {
    message.resize(end_of_message(message));
    return message;
}

/// what() may be null.
inline std::string_view text_of(const std::exception& error) {
    const char* const text = error.what();
    return text != nullptr ? text : "the exception has no text: its what() is null";
}

/// Whether an exception of libtorch means that memory is exhausted. Compares texts: this header includes no torch.
inline bool means_no_memory(const std::string& type, const std::string& message) {
    return type == "c10::OutOfMemoryError" ||
           message.find("DefaultCPUAllocator: can't allocate memory") != std::string::npos;
}

/// Describes the exception that is being handled. Call it inside a catch clause only. `most`: bytes of the message.
inline CallFailure current_failure(const std::string& parameter = {}, std::size_t most = kMaxErrorText) {
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
        const std::string_view text = text_of(error);
        const std::string_view part = part_for_callers(failure.type, text);
        failure.message = bounded_text(part, most);
        failure.details = bounded_text({part.end(), text.end()}, kMaxErrorDetails);
        if (means_no_memory(failure.type, failure.message)) failure.kind = CallFailure::Kind::out_of_memory;
    } catch (...) {
        const std::type_info* type = abi::__cxa_current_exception_type();
        failure.type = type != nullptr ? demangled(type->name()) : "unknown";
        failure.message = "not a std::exception";
    }
    return failure;
}

/// As current_failure(); returns Kind::out_of_memory if the description itself needs more memory than there is.
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
