#pragma once

// A shared function as the server sees it: SharedFunction is the seam between user code (a plugin, an executable, a
// model) and the dispatcher. No exception crosses it in either direction.

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <shared_tensor/context.hpp>
#include <shared_tensor/options.hpp>
#include <shared_tensor/value.hpp>

namespace shared_tensor {

/// Why a call could not be bound or did not end well.
struct CallFailure {
    enum class Kind { invalid_params, threw, out_of_memory, cancelled };
    Kind kind = Kind::threw;
    std::string parameter, expected, got;  ///< of invalid_params; parameter with its inner path: "boxes[2].x"
    std::string type, message;             ///< of threw: the C++ type and what()
    bool item = false;                     ///< of invalid_params: what came on a stream, while the function ran
    std::string details{};                 ///< of threw: what libtorch appends to its message (stacks); for the log
};

/// A call whose arguments are read: owns them. Run at most once.
class BoundCall {
public:
    virtual ~BoundCall() = default;
    /// Runs the user's code on the calling thread and writes its result; whatever it throws becomes the failure.
    virtual std::optional<CallFailure> run(Context& context, ValueWriter result) noexcept = 0;
};

struct Binding {
    std::unique_ptr<BoundCall> call;  ///< null when it failed
    std::optional<CallFailure> failure;
};

/// What a parameter is: an argument, or a stream that the function reads or writes.
enum class Flow { value, reader, writer };

struct ParameterInfo {
    std::string name;
    bool required = true;  ///< false for streams
    Flow flow = Flow::value;
};

/// Immutable after construction. Thread safety: all methods from any thread.
class SharedFunction {
public:
    virtual ~SharedFunction() = default;

    virtual std::string_view name() const = 0;
    virtual const FunctionOptions& options() const = 0;
    virtual std::string where() const = 0;  ///< "file.cpp:12", for messages about duplicates
    virtual std::span<const ParameterInfo> parameters() const = 0;

    virtual void parameter_schema(std::size_t index, ValueWriter schema) const = 0;  ///< of a stream: of its items
    virtual void default_value(std::size_t index,
                               ValueWriter value) const = 0;  ///< of a parameter that is not required
    virtual void result_schema(ValueWriter schema) const = 0;

    /// Reads all arguments, before anything runs. `arguments[i]` belongs to parameters()[i], null where none was given,
    /// and for streams.
    /// The binding owns what it needs of them: `source` may go once this returned.
    virtual Binding bind(const ValueSource& source, std::span<const ValueSource::Node> arguments) const noexcept = 0;
};

}  // namespace shared_tensor
