#include "base/system/files.hpp"

#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>

#include "base/bytes/ids.hpp"

using namespace shared_tensor;

namespace {

/// A folder that goes away with the test.
struct TemporaryFolder {
    TemporaryFolder() { std::filesystem::create_directory(path); }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    ~TemporaryFolder() { std::filesystem::remove_all(path); }
    std::string write(const std::string& name, const std::string& text) const {
        std::ofstream(path / name) << text;
        return (path / name).string();
    }
    std::filesystem::path path = std::filesystem::temp_directory_path() / ("st-watch-" + random_hex(8));
};

/// Once the files stay as they are.
bool changed_and_settled(FileWatch& watch) {
    const bool at_once = watch.changed();
    return !at_once && watch.changed();
}

TEST_CASE("files that nobody touches do not change", "[util][file_watch]") {
    const TemporaryFolder folder;
    FileWatch watch({folder.write("a", "one"), folder.write("b", "two")});
    for (int i = 0; i < 5; ++i)
        CHECK_FALSE(watch.changed());
}

TEST_CASE("a change is told once, when the file has stayed as it is for a look", "[util][file_watch]") {
    const TemporaryFolder folder;
    FileWatch watch({folder.write("a", "one")});
    folder.write("a", "longer");
    CHECK_FALSE(watch.changed());
    CHECK(watch.changed());
    CHECK_FALSE(watch.changed());
    CHECK_FALSE(watch.changed());
}

TEST_CASE("a file that is still being written is not told of", "[util][file_watch]") {
    const TemporaryFolder folder;
    FileWatch watch({folder.write("a", "x")});
    for (std::size_t size = 2; size < 10; ++size) {
        folder.write("a", std::string(size, 'x'));
        CHECK_FALSE(watch.changed());
    }
    CHECK(watch.changed());
}

TEST_CASE("a file that is replaced by one of equal size and times has changed", "[util][file_watch]") {
    const TemporaryFolder folder;
    const std::string path = folder.write("a", "one");
    const auto time = std::filesystem::last_write_time(path);
    FileWatch watch({path});
    const std::string other = folder.write("b", "two");
    std::filesystem::last_write_time(other, time);
    std::filesystem::rename(other, path);
    CHECK(changed_and_settled(watch));
}

TEST_CASE("a file that is written anew with equal size has changed", "[util][file_watch]") {
    const TemporaryFolder folder;
    const std::string path = folder.write("a", "one");
    std::filesystem::last_write_time(path, std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
    FileWatch watch({path});
    folder.write("a", "two");
    CHECK(changed_and_settled(watch));
}

TEST_CASE("a file that others may read now has changed", "[util][file_watch]") {
    const TemporaryFolder folder;
    const std::string path = folder.write("a", "one");
    ::chmod(path.c_str(), 0600);
    FileWatch watch({path});
    ::chmod(path.c_str(), 0644);
    CHECK(changed_and_settled(watch));
}

TEST_CASE("a file that goes, and one that comes, have changed", "[util][file_watch]") {
    const TemporaryFolder folder;
    const std::string path = folder.write("a", "one");
    FileWatch watch({path});
    std::filesystem::remove(path);
    CHECK(changed_and_settled(watch));
    CHECK_FALSE(watch.changed());
    folder.write("a", "two");
    CHECK(changed_and_settled(watch));
}

TEST_CASE("a link that leads to another file has changed, as mounted secrets do", "[util][file_watch]") {
    const TemporaryFolder folder;
    folder.write("old", "one");
    folder.write("new", "two");
    const auto link = folder.path / "link";
    std::filesystem::create_symlink("old", link);
    FileWatch watch({link.string()});
    std::filesystem::remove(link);
    std::filesystem::create_symlink("new", link);
    CHECK(changed_and_settled(watch));
}

TEST_CASE("every one of the files is looked at", "[util][file_watch]") {
    const TemporaryFolder folder;
    FileWatch watch({folder.write("a", "one"), "", folder.write("c", "three")});
    folder.write("c", "changed");
    CHECK(changed_and_settled(watch));
    folder.write("a", "changed");
    CHECK(changed_and_settled(watch));
}

TEST_CASE("a file that changes and changes back to what was known is not told of", "[util][file_watch]") {
    const TemporaryFolder folder;
    const std::string path = folder.write("a", "one");
    FileWatch watch({path});
    std::filesystem::rename(path, path + ".away");
    CHECK_FALSE(watch.changed());
    std::filesystem::rename(path + ".away", path);
    CHECK_FALSE(watch.changed());
    CHECK_FALSE(watch.changed());
}

TEST_CASE("nothing to look at never changes", "[util][file_watch]") {
    FileWatch none({}), empty({""});
    CHECK_FALSE(none.changed());
    CHECK_FALSE(empty.changed());
    CHECK_FALSE(empty.changed());
}

}  // namespace
