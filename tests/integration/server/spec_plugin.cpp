// What the tests of the server call: the functions of the specification's examples, and functions that a test can hold
// in the middle of a run and look into.

#include <cstdint>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include <shared_tensor/object.hpp>
#include <shared_tensor/share.hpp>
#include <shared_tensor/stream.hpp>

namespace {

using Number = std::optional<std::int64_t>;

std::int64_t subtract(std::int64_t minuend, std::int64_t subtrahend) { return minuend - subtrahend; }
std::int64_t sum(Number a, Number b, Number c, Number d, Number e) {
    return a.value_or(0) + b.value_or(0) + c.value_or(0) + d.value_or(0) + e.value_or(0);
}
std::tuple<std::string, int> get_data() { return {"hello", 5}; }
void take(Number, Number, Number, Number, Number) {}

std::string greet(const std::string& name, const std::string& greeting, const std::optional<std::string>& suffix) {
    return greeting + ", " + name + suffix.value_or("!");
}
std::int64_t total(const std::vector<std::int8_t>& numbers) {
    std::int64_t all = 0;
    for (const std::int8_t number : numbers)
        all += number;
    return all;
}
std::string text_of(std::int64_t size) { return std::string(static_cast<std::size_t>(size), 'x'); }

void throw_int() { throw 42; }
void throw_bad_alloc() { throw std::bad_alloc(); }
void throw_error() { throw std::out_of_range("beyond the end \xFF"); }
void throw_text(std::int64_t size) { throw std::runtime_error(std::string(static_cast<std::size_t>(size), 'x')); }
void throw_with_stack() {  // as libtorch words it
    throw std::runtime_error("no such kernel\n\nCPU: registered at RegisterCPU.cpp:1 [kernel]\n" +
                             std::string(7000, 'k'));
}
struct NoText : std::exception {
    const char* what() const noexcept override { return nullptr; }
};
void throw_no_text() { throw NoText(); }
std::string huge() { return std::string(std::size_t{1} << 60, 'x'); }

/// What is known of the runs under one name.
struct Runs {
    int started = 0, running = 0, peak = 0, cancelled = 0, ended = 0;
    bool released = false;
};
struct Book {
    std::mutex mutex;
    std::map<std::string, Runs> runs;
};
Book& book() {
    static auto* book = new Book;
    return *book;
}
template <class Use>
auto with_runs(const std::string& name, Use use) {
    const std::lock_guard hold(book().mutex);
    return use(book().runs[name]);
}

/// Runs until release(name), or until it is cancelled (when it listens). How often it was started before is its result.
int held(shared_tensor::Context& context, const std::string& name, bool listens) {
    const int before = with_runs(name, [](Runs& runs) {
        runs.peak = std::max(runs.peak, ++runs.running);
        return runs.started++;
    });
    context.progress(0.5, "held");
    bool cancelled = false;
    while (!with_runs(name, [](Runs& runs) { return runs.released; })) {
        const bool awake = context.sleep_for(std::chrono::milliseconds(2));
        if (awake || cancelled) continue;
        cancelled = true;
        with_runs(name, [](Runs& runs) { ++runs.cancelled; });
        if (listens) break;
    }
    with_runs(name, [](Runs& runs) {
        --runs.running;
        ++runs.ended;
    });
    if (listens) context.check_cancelled();
    return before;
}

int hold(shared_tensor::Context& context, const std::string& name) { return held(context, name, true); }
int hold_deaf(shared_tensor::Context& context, const std::string& name) { return held(context, name, false); }
void release(const std::string& name) {
    with_runs(name, [](Runs& runs) { runs.released = true; });
}
std::map<std::string, int> runs_of(const std::string& name) {
    return with_runs(name, [](Runs& runs) {
        return std::map<std::string, int>{{"started", runs.started},
                                          {"running", runs.running},
                                          {"peak", runs.peak},
                                          {"cancelled", runs.cancelled},
                                          {"ended", runs.ended}};
    });
}

/// An object whose end is seen: runs_of(name).ended.
struct Thing {
    explicit Thing(std::string of) : name(std::move(of)) {}
    Thing(const Thing&) = delete;
    Thing& operator=(const Thing&) = delete;
    ~Thing() {
        with_runs(name, [](Runs& runs) { ++runs.ended; });
    }
    const std::string name;
};
/// Of the same name on the wire as a type of another plugin, and yet another type.
struct FalseVocabulary {};

}  // namespace

SHARED_TENSOR_OBJECT("thing", Thing);
SHARED_TENSOR_OBJECT("example.vocabulary", FalseVocabulary);

namespace {

using shared_tensor::Shared;

Shared<Thing> make_thing(const std::string& name) { return shared_tensor::make_shared_object<Thing>(name); }
std::vector<Shared<Thing>> make_things(const std::string& name, std::size_t count) {
    std::vector<Shared<Thing>> things;
    for (std::size_t i = 0; i < count; ++i)
        things.push_back(make_thing(name));
    return things;
}
void thing_each(shared_tensor::Writer<Shared<Thing>> things, int count) {
    for (int i = 0; i < count && things.write(shared_tensor::make_shared_object<Thing>("one")); ++i) {
    }
}
std::string name_of(const Shared<const Thing>& thing) { return thing->name; }
Shared<Thing> same_thing(const Shared<Thing>& thing) { return thing; }
Shared<FalseVocabulary> false_vocabulary() { return shared_tensor::make_shared_object<FalseVocabulary>(); }
std::string type_of(const shared_tensor::Object& object) { return std::string(object.type()); }

int hold_with(shared_tensor::Context& context, const Shared<const Thing>&, const std::string& name) {
    return held(context, name, true);
}
int hold_alone(shared_tensor::Context& context, const Shared<Thing>&, const std::string& name) {
    return held(context, name, true);
}
int count_runs(const Shared<const Thing>& thing) {
    return with_runs(thing->name, [](Runs& runs) { return ++runs.started; });
}

}  // namespace

SHARE(make_thing, arg("name"));
SHARE_AS("make_thing_once", make_thing, arg("name"), cached(1h));
SHARE(make_things, arg("name"), arg("count"));
SHARE(thing_each, arg("things"), arg("count"));
SHARE(name_of, arg("thing"));
SHARE(same_thing, arg("thing"));
SHARE(false_vocabulary);
SHARE(type_of, arg("object"));
SHARE(hold_with, arg("thing"), arg("name"));
SHARE(hold_alone, arg("thing"), arg("name"));
SHARE(count_runs, arg("thing"), cached(1h));

SHARE(subtract, arg("minuend"), arg("subtrahend"));
SHARE(sum);
SHARE(get_data);
SHARE_AS("update", take);
SHARE_AS("notify_hello", take);
SHARE_AS("notify_sum", take);

SHARE(greet, arg("name"), arg("greeting") = "Hello", arg("suffix"), doc("Greets."));
SHARE(total, arg("numbers"));
SHARE(text_of, arg("size"));
SHARE(throw_int);
SHARE(throw_bad_alloc);
SHARE(throw_error);
SHARE(throw_text, arg("size"));
SHARE(throw_with_stack);
SHARE(throw_no_text);
SHARE(huge);

SHARE(hold, arg("name"));
SHARE(hold_deaf, arg("name"));
SHARE_AS("hold_one", hold, arg("name"), concurrency(1));
SHARE_AS("hold_cached", hold, arg("name"), cached(1h));
SHARE_AS("hold_task", hold, arg("name"), execution::task);
SHARE_AS("hold_briefly", hold, arg("name"), timeout(50ms));
SHARE(release, arg("name"), execution::inline_);
SHARE(runs_of, arg("name"), execution::inline_);
