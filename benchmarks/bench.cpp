// Measures the cost of the library, each figure beside a peer or a physical limit in the same run. See README.md.

#include <sys/resource.h>

#include <cstdlib>
#include <cxxopts.hpp>
#include <exception>
#include <filesystem>
#include <iostream>
#include <stdexcept>

#include "groups.hpp"
#include "process.hpp"
#include "servers.hpp"

namespace bench {

namespace {

struct Place {
    const char* option;
    const char* title;
    Placement placement;
};
constexpr Place kPlaces[] = {{"one", "one core", Placement::one_core},
                             {"two", "two cores", Placement::two_cores},
                             {"all", "all cores", Placement::all_cores}};

/// A temporary folder for sockets; the destructor removes it.
class Folder {
public:
    Folder() : path_((std::filesystem::temp_directory_path() / "shared_tensor_bench.XXXXXX").string()) {
        if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("cannot make the folder " + path_);
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    ~Folder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    const std::string& path() const { return path_; }

private:
    std::string path_;
};

/// 1,000 connections need more descriptors than many shells allow by default.
void raise_descriptor_limit() {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
}

cxxopts::Options options() {
    cxxopts::Options options("shared_tensor_bench", "Measures shared_tensor beside its peers.");
    auto add = options.add_options();
    const auto text = [] { return cxxopts::value<std::string>()->default_value(""); };
    add("seconds", "of each small measurement", cxxopts::value<double>()->default_value("2"));
    add("only", "small, throughput, tensors, streams, nodes, memory, scaling, metrics or overload", text());
    add("where", "one: client and server on one core; two (small): on two; all: as the scheduler likes", text());
    add("python", "interpreter with torch, ray, pyarrow, for the peers in Python", text());
    add("large", "tensors: 1 GiB too, which takes 20 GiB of memory");
    add("json", "append JSON lines to this file", text());
    add("h,help", "print this");
    return options;
}

struct Group {
    const char* name;
    void (*measure)(Report&, const Settings&);
};
constexpr Group kGroups[] = {{"small", small_calls}, {"throughput", throughput}, {"tensors", tensors},
                             {"streams", streams},   {"nodes", nodes},           {"memory", memory},
                             {"publish", publish},   {"scaling", scaling},       {"metrics", metrics},
                             {"overload", overload}};

int run(int argc, char** argv) {
    auto known = options();
    const auto given = known.parse(argc, argv);
    if (given.count("help") > 0) {
        std::cout << known.help();
        return 0;
    }
    raise_descriptor_limit();
    const Folder folder;
    const Settings settings{given["seconds"].as<double>(), folder.path(), given["python"].as<std::string>(),
                            given.count("large") > 0};
    const std::string where = given["where"].as<std::string>();
    bool well = true;
    const std::string only = given["only"].as<std::string>();
    for (const auto& [option, title, placement] : kPlaces) {
        if (!where.empty() && where != option) continue;
        for (const auto& [name, measure] : kGroups) {
            if (!only.empty() && only != name) continue;
            if (placement == Placement::two_cores && measure != small_calls) continue;
            well &= in_child([&, group = measure, at = placement, place_title = title] {
                place(at);
                Report report(given["json"].as<std::string>(), place_title);
                group(report, settings);
            });
        }
    }
    return well ? 0 : 1;
}

}  // namespace

}  // namespace bench

int main(int argc, char** argv) {
    try {
        if (argc > 2 && std::string(argv[1]) == "--serve") return bench::serve_role({argv + 2, argv + argc});
        return bench::run(argc, argv);
    } catch (const std::exception& error) {
        std::cerr << "shared_tensor_bench: " << error.what() << '\n';
        return 1;
    }
}
