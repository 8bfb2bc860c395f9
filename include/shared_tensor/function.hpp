#pragma once

// FunctionRecord is the interface between user code (a plugin, an executable, a model) and the dispatcher. No exception
// crosses it in either direction.

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <shared_tensor/context.hpp>
#include <shared_tensor/options.hpp>
#include <shared_tensor/value.hpp>

namespace shared_tensor {

/// The reason why a call could not be bound, or failed.
struct CallFailure {
    enum class Kind { invalid_params, threw, out_of_memory, cancelled, busy };
    Kind kind = Kind::threw;
    std::string parameter, expected, got;  ///< for invalid_params; parameter with its inner path: "boxes[2].x"
    std::string type, message;             ///< for threw: the C++ type and what()
    bool item = false;                     ///< for invalid_params: an item of a stream, while the function ran
    std::string details{};                 ///< for threw: the part of libtorch's text that only the log gets (stacks)
    std::string traceback{};               ///< for threw: where in the user's code, for the caller (Python)
};

/// A call with its arguments, which it owns. Run it at most once.
class BoundCall {
public:
    virtual ~BoundCall() = default;
    /// Runs the user's code on the calling thread and writes its result. An exception of the code becomes the failure.
    virtual std::optional<CallFailure> run(Context& context, ValueWriter result) noexcept = 0;
};

struct Binding {
    std::unique_ptr<BoundCall> call;  ///< null if `failure` is set
    std::optional<CallFailure> failure;
};

/// A parameter is a value, or a stream that the function reads or writes.
enum class Flow { value, reader, writer };

struct ParameterInfo {
    std::string name;
    bool required = true;  ///< false for streams
    Flow flow = Flow::value;
};

/// A shared function. Immutable after construction. Thread safety: any thread may call any method.
class FunctionRecord {
public:
    virtual ~FunctionRecord() = default;

    virtual std::string_view name() const = 0;
    virtual const FunctionOptions& options() const = 0;
    virtual std::string where() const = 0;  ///< "file.cpp:12", for error texts about duplicate names
    virtual std::span<const ParameterInfo> parameters() const = 0;

    virtual void parameter_schema(std::size_t index, ValueWriter schema) const = 0;  ///< for a stream: of its items
    virtual void default_value(std::size_t index,
                               ValueWriter value) const = 0;  ///< for a parameter that is not required
    virtual void result_schema(ValueWriter schema) const = 0;

    /// Reads all arguments, before anything runs. `arguments[i]` belongs to parameters()[i]; null for a missing
    /// argument and for a stream. The binding does not refer to `source` afterwards.
    virtual Binding bind(const ValueSource& source, std::span<const ValueSource::Node> arguments) const noexcept = 0;
};

}  // namespace shared_tensor
