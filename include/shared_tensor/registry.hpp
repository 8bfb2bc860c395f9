#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <shared_tensor/detail/adapter.hpp>
#include <shared_tensor/detail/signature.hpp>
#include <shared_tensor/function.hpp>
#include <shared_tensor/share.hpp>

namespace shared_tensor {

namespace detail {

/// A function's name, and the file and line of the code that gives the name.
struct PlacedName {
    // Not std::source_location: clang has none before version 16.
    template <std::convertible_to<std::string> Text>  // NOLINTNEXTLINE(bugprone-forwarding-reference-overload)
    PlacedName(Text&& name, const char* file = __builtin_FILE(), int line = __builtin_LINE())
        : text(std::forward<Text>(name)), where(std::string(file) + ':' + std::to_string(line)) {}
    std::string text, where;
};

}  // namespace detail

/// The functions that a server offers. An ordinary object, never global.
///
/// Ownership: the registry owns the functions that add() made; functions that SHARE made live as long as the process.
/// Thread safety: fill it from one thread, then read it from any thread.
class Registry {
public:
    Registry() = default;
    Registry(Registry&&) = default;
    Registry& operator=(Registry&&) = default;

    /// The functions that SHARE collected in the calling module (executable or plugin).
    static Registry from_shared() {
        Registry registry;
        registry.add_records(detail::share_records);
        registry.use(detail::framework);
        return registry;
    }

    /// Adds a lambda, a function, or member(object, &Type::method), with the same options as SHARE.
    /// Throws std::invalid_argument if the name is taken (the text names both places), reserved or malformed.
    template <class F, class... Options>
    void add(detail::PlacedName name, F callable, const Options&... options) {
        use(detail::framework);
        add(detail::make_function_record(std::move(name.text), std::move(name.where), std::move(callable), options...));
    }
    void add(std::shared_ptr<const FunctionRecord> function);
    /// `module`: the plugin that the records come from, for error texts; empty: this program.
    void add_records(const detail::ShareRecord* records, const std::string& module = {});

    /// Records that the functions use tensors of `framework` (null: of no framework).
    void use(const detail::Framework* framework);
    const std::vector<const detail::Framework*>& frameworks() const { return frameworks_; }

    /// Returns nullptr if no function has that name.
    const FunctionRecord* find(std::string_view name) const;

    /// All functions, sorted by name.
    std::vector<std::shared_ptr<const FunctionRecord>> functions() const;
    std::size_t size() const { return functions_.size(); }

private:
    struct Hash {
        using is_transparent = void;
        std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
    };
    struct Entry {
        std::shared_ptr<const FunctionRecord> function;
        std::string module;
    };
    void add(Entry entry);

    std::unordered_map<std::string, Entry, Hash, std::equal_to<>> functions_;
    std::vector<const detail::Framework*> frameworks_;
};

}  // namespace shared_tensor
