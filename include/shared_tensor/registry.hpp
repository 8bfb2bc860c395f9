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

/// A name, and the line that gives it: taken where a string becomes one of these.
struct PlacedName {
    // Not std::source_location: clang has none before version 16.
    template <std::convertible_to<std::string> Text>  // NOLINTNEXTLINE(bugprone-forwarding-reference-overload)
    PlacedName(Text&& name, const char* file = __builtin_FILE(), int line = __builtin_LINE())
        : text(std::forward<Text>(name)), where(std::string(file) + ':' + std::to_string(line)) {}
    std::string text, where;
};

}  // namespace detail

/// The functions that a server offers: an ordinary object, never global.
///
/// Ownership: functions given by add() belong to it; those that SHARE made live as long as the process.
/// Thread safety: fill it from one thread, then read it from any.
class Registry {
public:
    Registry() = default;
    Registry(Registry&&) = default;
    Registry& operator=(Registry&&) = default;

    /// What SHARE collected in the module (executable or plugin) that calls this.
    static Registry from_shared() {
        Registry registry;
        registry.add_records(detail::share_records);
        registry.use(detail::framework);
        return registry;
    }

    /// A lambda, a function, or member(object, &Type::method), with the same options as SHARE.
    /// Throws std::invalid_argument for a name that is taken (naming both places), reserved or malformed.
    template <class F, class... Options>
    void add(detail::PlacedName name, F callable, const Options&... options) {
        use(detail::framework);
        add(detail::make_shared_function(std::move(name.text), std::move(name.where), std::move(callable), options...));
    }
    void add(std::shared_ptr<const SharedFunction> function);
    /// `module`: the plugin that they are of, for messages; empty: this program.
    void add_records(const detail::ShareRecord* records, const std::string& module = {});

    /// The functions use tensors of that framework (null: of none).
    void use(const detail::Framework* framework);
    const std::vector<const detail::Framework*>& frameworks() const { return frameworks_; }

    /// nullptr when there is none of that name.
    const SharedFunction* find(std::string_view name) const;

    /// All, by name.
    std::vector<std::shared_ptr<const SharedFunction>> functions() const;
    std::size_t size() const { return functions_.size(); }

private:
    struct Hash {
        using is_transparent = void;
        std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
    };
    struct Entry {
        std::shared_ptr<const SharedFunction> function;
        std::string module;
    };
    void add(Entry entry);

    std::unordered_map<std::string, Entry, Hash, std::equal_to<>> functions_;
    std::vector<const detail::Framework*> frameworks_;
};

}  // namespace shared_tensor
