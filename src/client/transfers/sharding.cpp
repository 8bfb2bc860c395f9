#include <shared_tensor/sharding.hpp>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/concurrency/clock.hpp"
#include "base/concurrency/in_parallel.hpp"
#include "client/transfers/transfer.hpp"
#include "tensor/memory.hpp"

namespace shared_tensor {

namespace {

using LayoutJson = nlohmann::json;
using Sizes = std::vector<std::int64_t>;
using std::chrono::milliseconds;

constexpr const char* kMetadata = "sharding";
constexpr milliseconds kPause{50};  // between two looks at the publishers

[[noreturn]] void fail(const std::string& what) { throw std::invalid_argument("sharding: " + what); }

std::string text_of(const std::vector<Placement1D>& placements) {
    std::string text;
    for (const Placement1D& one : placements)
        text += one.dimension ? "S(" + std::to_string(*one.dimension) + ')' : "R";
    return text;
}

std::int64_t elements_of(const TensorPart& part) {
    std::int64_t product = 1;
    for (const std::int64_t size : part.size)
        product *= size;
    return product;
}

/// What two parts of one tensor have in common; empty sizes if that is nothing.
TensorPart common(const TensorPart& one, const TensorPart& other) {
    TensorPart both = one;
    for (std::size_t i = 0; i < both.first.size(); ++i) {
        both.first[i] = std::max(one.first[i], other.first[i]);
        const std::int64_t end = std::min(one.first[i] + one.size[i], other.first[i] + other.size[i]);
        both.size[i] = std::max<std::int64_t>(end - both.first[i], 0);
    }
    return both;
}

/// `part`, counted from the beginning of `whole`.
TensorPart within(const TensorPart& part, const TensorPart& whole) {
    TensorPart moved = part;
    for (std::size_t i = 0; i < moved.first.size(); ++i)
        moved.first[i] -= whole.first[i];
    return moved;
}

TensorRef view_of(const TensorRef& tensor, const TensorPart& part) {
    const Sizes strides(tensor.strides().begin(), tensor.strides().end());
    std::int64_t skipped = 0;
    for (std::size_t i = 0; i < strides.size(); ++i)
        skipped += part.first[i] * strides[i];
    std::byte* const data = tensor.mutable_data();
    const auto bytes = skipped * static_cast<std::int64_t>(size_of(tensor.dtype()));
    return tensor.view(data != nullptr ? data + bytes : nullptr, tensor.dtype(), part.size, strides);
}

/// Copies the elements of `from` to `to`, of the same shape, in runs of contiguous ones.
void copy(const TensorRef& from, const TensorRef& to) {
    if (from.elements() == 0) return;
    if (from.rank() > 0 && !(from.is_contiguous() && to.is_contiguous())) {
        for (std::int64_t i = 0; i < from.shape()[0]; ++i)
            copy(from.select(i), to.select(i));
        return;
    }
    std::memcpy(to.mutable_data(), from.data(), static_cast<std::size_t>(from.bytes()));
}

/// get() alone would make 1 of 1.5. The bound keeps sums and products of part_of() small enough.
std::int64_t whole_number(const LayoutJson& json) {
    if (!json.is_number_unsigned() || json.get<std::uint64_t>() > std::uint64_t{1} << 53)
        fail("a layout has " + json.dump() + " in place of a whole number up to 2^53");
    return json.get<std::int64_t>();
}

Sizes sizes_of(const LayoutJson& list) {
    Sizes sizes;
    for (const LayoutJson& one : list)
        sizes.push_back(whole_number(one));
    return sizes;
}

/// A tensor as one publisher has it.
struct Shard {
    TensorPart part;
    DType dtype;
    Sizes shape;  ///< of the whole tensor
};

/// What a publisher has, of one generation.
struct Publisher {
    const NamedShards* shards = nullptr;
    std::uint64_t version = 0;
    std::string generation;
    bool is_near = false;
    std::map<std::string, Shard> tensors;
    std::optional<NamedTensor> content;  ///< of a server of this host
};

Publisher look_at(const NamedShards& shards) {
    Publisher seen;
    seen.shards = &shards;
    seen.is_near = shards.names.is_near();
    const auto odd = [&] { fail('"' + shards.name + "\" was not published by put_sharded(): it is not sharded"); };
    std::optional<NamedTensor> got;
    try {
        got = seen.is_near ? shards.names.get(shards.name) : shards.names.get(shards.name, std::vector<std::string>());
    } catch (const InvalidParams&) {  // it is one tensor, and no set
        odd();
    }
    const NamedTensor& named = *got;
    seen.version = named.version();
    const auto found = named.metadata().find(kMetadata);
    if (found == named.metadata().end()) odd();
    try {
        const LayoutJson layout = LayoutJson::parse(found->second);
        seen.generation = layout.at("generation").get<std::string>();
        const MeshPlace place{sizes_of(layout.at("mesh")), sizes_of(layout.at("at"))};
        for (const auto& [name, one] : layout.at("tensors").items()) {
            std::vector<Placement1D> placements;
            for (const LayoutJson& placement : one.at(2))
                placements.push_back(placement.is_null() ? replicate()
                                                         : shard(static_cast<std::size_t>(whole_number(placement))));
            const auto dtype = parse_dtype(one.at(0).get<std::string>());
            if (!dtype) fail("the dtype of \"" + name + "\" is not known");
            const auto shape = sizes_of(one.at(1));
            seen.tensors.emplace(name, Shard{part_of(shape, placements, place), *dtype, shape});
        }
    } catch (const LayoutJson::exception& error) {
        fail('"' + shards.name + "\" says in an unknown way how it is sharded: " + error.what());
    }
    if (seen.is_near) seen.content = named;
    return seen;
}

/// All publishers with one generation. Waits until they have one.
std::vector<Publisher> look_at_all(const std::vector<NamedShards>& publishers, const ShardedRead& options,
                                   SteadyTime end) {
    for (;;) {
        std::vector<Publisher> all;
        std::set<std::string> generations;
        for (const NamedShards& one : publishers) {
            all.push_back(look_at(one));
            generations.insert(all.back().generation);
        }
        if (generations.size() == 1 && (!options.generation || generations.contains(*options.generation))) return all;
        if (real_clock().now() >= end) {
            std::string seen;
            for (const std::string& one : generations)
                seen += (seen.empty() ? "\"" : ", \"") + one + '"';
            throw UnknownOrExpired(static_cast<int>(ErrorCode::unknown_or_expired), "Unknown or expired", {},
                                   "sharding: the publishers have the generations " + seen +
                                       (options.generation ? " and not \"" + *options.generation + '"' : "") +
                                       ", and not one in common");
        }
        std::this_thread::sleep_for(kPause);
    }
}

/// What is left of `box` without `hole`, which lies in it.
std::vector<TensorPart> without(TensorPart box, const TensorPart& hole) {
    std::vector<TensorPart> rest;
    for (std::size_t i = 0; i < box.size.size(); ++i) {
        const std::int64_t end = box.first[i] + box.size[i], end_of_hole = hole.first[i] + hole.size[i];
        if (hole.first[i] > box.first[i]) {
            rest.push_back(box);
            rest.back().size[i] = hole.first[i] - box.first[i];
        }
        if (end_of_hole < end) {
            rest.push_back(box);
            rest.back().first[i] = end_of_hole;
            rest.back().size[i] = end - end_of_hole;
        }
        box.first[i] = hole.first[i];
        box.size[i] = hole.size[i];
    }
    return rest;
}

/// A part of a wanted tensor and where it comes from.
struct Job {
    const Publisher* publisher;
    const std::string* name;
    TensorPart part;  ///< of the whole tensor
    TensorRef to;
};

/// Divides what is wanted among the publishers. `turn` differs among readers: of several publishers with the same part
/// they use different ones. Near ones are preferred.
void plan(const std::vector<Publisher>& publishers, const std::string& name, const std::vector<Placement1D>& placements,
          const MeshPlace& place, std::size_t turn, ShardedTensors& result, std::vector<Job>& jobs) {
    const Shard* any = nullptr;
    for (const Publisher& one : publishers) {
        const auto found = one.tensors.find(name);
        if (found != one.tensors.end()) any = &found->second;
    }
    if (any == nullptr) fail("no publisher has \"" + name + '"');
    const TensorPart wanted = part_of(any->shape, placements, place);
    const TensorRef to = tensor::allocate(any->dtype, wanted.size);
    result.tensors.emplace(name, to);
    std::vector<TensorPart> missing;
    if (elements_of(wanted) > 0) missing.push_back(wanted);
    for (const bool near : {true, false}) {
        for (std::size_t i = 0; i < publishers.size() && !missing.empty(); ++i) {
            const Publisher& one = publishers[(i + turn) % publishers.size()];
            const auto found = one.tensors.find(name);
            if (one.is_near != near || found == one.tensors.end()) continue;
            if (found->second.shape != any->shape || found->second.dtype != any->dtype)
                fail("the publishers have \"" + name + "\" in different shapes or dtypes");
            std::vector<TensorPart> left;
            for (const TensorPart& box : missing) {
                const TensorPart part = common(found->second.part, box);
                if (elements_of(part) == 0) {
                    left.push_back(box);
                    continue;
                }
                jobs.push_back({&one, &found->first, part, view_of(to, within(part, wanted))});
                std::ranges::move(without(box, part), std::back_inserter(left));
            }
            missing = std::move(left);
        }
    }
    std::int64_t count = 0;
    for (const TensorPart& box : missing)
        count += elements_of(box);
    if (count > 0)
        fail(std::to_string(count) + " elements of \"" + name + "\" that are wanted are at no publisher: name all");
}

/// Throws if the publisher's tensor is not what its metadata says.
void check_came(const TensorRef& tensor, const Sizes& shape, DType dtype, const std::string& name) {
    if (tensor.dtype() != dtype || !std::ranges::equal(tensor.shape(), shape))
        throw ProtocolFailure("sharding: another tensor than \"" + name + "\" came", true);
}

/// Returns the bytes that came from another host.
std::uint64_t fetch(const Job& job) {
    const Shard& shard = job.publisher->tensors.at(*job.name);
    const TensorPart part = within(job.part, shard.part);
    if (job.publisher->content) {
        const NamedTensor& content = *job.publisher->content;
        const TensorRef& all = content[*job.name];
        check_came(all, shard.part.size, job.to.dtype(), *job.name);
        copy(view_of(all, part), job.to);
        return 0;
    }
    PullOptions options;
    options.version = job.publisher->version;
    options.connections = 1;  // other requests run at the same time
    if (part.size != shard.part.size) options.part = part;
    const NamedShards& shards = *job.publisher->shards;
    const NamedTensor got = shards.names.pull(shards.name + '/' + *job.name, options);
    check_came(got.tensor(), part.size, job.to.dtype(), *job.name);
    copy(got.tensor(), job.to);
    return got.tensor().bytes();
}

}  // namespace

TensorPart part_of(const Sizes& shape, const std::vector<Placement1D>& placements, const MeshPlace& place) {
    if (place.mesh.empty() || place.mesh.size() != place.at.size() || placements.size() != place.mesh.size())
        fail("the mesh, the place in it and the placements (" + text_of(placements) +
             ") need the same number of dimensions, at least one");
    TensorPart part{Sizes(shape.size(), 0), shape};
    for (std::size_t i = 0; i < placements.size(); ++i) {
        const std::int64_t count = place.mesh[i], number = place.at[i];
        if (count < 1 || number < 0 || number >= count)
            fail("there is no place " + std::to_string(number) + " among " + std::to_string(count) + " processes");
        if (!placements[i].dimension) continue;
        const std::size_t dimension = *placements[i].dimension;
        if (dimension >= shape.size())
            fail("S(" + std::to_string(dimension) + ") is for a tensor of more than " + std::to_string(shape.size()) +
                 " dimensions");
        const std::int64_t all = part.size[dimension], most = (all + count - 1) / count;
        const std::int64_t first = std::min(number * most, all);
        part.first[dimension] += first;
        part.size[dimension] = std::min(most, all - first);
    }
    return part;
}

Published put_sharded(const NamedTensors& names, std::string_view name,
                      const std::map<std::string, ShardedTensor>& tensors, const MeshPlace& place,
                      const std::string& generation, PutOptions options) {
    LayoutJson layout{
        {"mesh", place.mesh}, {"at", place.at}, {"generation", generation}, {"tensors", LayoutJson::object()}};
    std::map<std::string, TensorRef> parts;
    for (const auto& [member, one] : tensors) {
        const TensorPart part = part_of(one.shape, one.placements, place);
        const Sizes local(one.local.shape().begin(), one.local.shape().end());
        if (local != part.size)
            fail('"' + member + "\": the local part has the shape " + LayoutJson(local).dump() +
                 ", and the placements " + text_of(one.placements) + " give it " + LayoutJson(part.size).dump());
        LayoutJson placements = LayoutJson::array();
        for (const Placement1D& placement : one.placements)
            placements.push_back(placement.dimension ? LayoutJson(*placement.dimension) : LayoutJson(nullptr));
        layout["tensors"][member] = {name_of(one.local.dtype()), one.shape, std::move(placements)};
        parts.emplace(member, one.local);
    }
    options.metadata[kMetadata] = layout.dump();
    return names.put(name, parts, options);
}

ShardedTensors get_sharded(const std::vector<NamedShards>& publishers,
                           const std::map<std::string, std::vector<Placement1D>>& wanted, const MeshPlace& place,
                           const ShardedRead& options) {
    if (publishers.empty()) fail("name at least one publisher");
    const SteadyTime end = later(real_clock().now(), options.patience);
    std::size_t turn = 0;
    for (std::size_t i = 0; i < place.at.size() && i < place.mesh.size(); ++i)
        turn = turn * static_cast<std::size_t>(std::max<std::int64_t>(place.mesh[i], 1)) +
               static_cast<std::size_t>(std::max<std::int64_t>(place.at[i], 0));
    for (;;) {
        const std::vector<Publisher> all = look_at_all(publishers, options, end);
        ShardedTensors result;
        result.generation = all.front().generation;
        std::vector<Job> jobs;
        for (const auto& [name, placements] : wanted)
            plan(all, name, placements, place, turn, result, jobs);
        std::atomic<std::uint64_t> fetched{0};
        try {
            in_parallel(std::min<std::size_t>(std::max<std::size_t>(options.connections, 1), jobs.size()), jobs.size(),
                        [&](std::uint64_t i) { fetched += fetch(jobs[i]); });
            result.fetched_bytes = fetched;
            return result;
        } catch (const UnknownOrExpired&) {  // a publisher has published its next generation meanwhile
            if (real_clock().now() >= end) throw;
        }
    }
}

}  // namespace shared_tensor
