#include "base/system/files.hpp"

#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <functional>

#include "support/temporary_folder.hpp"

using namespace shared_tensor;
using test::TemporaryFolder;

namespace fs = std::filesystem;

TEST_CASE("a change is told once, when the file has stayed as it is for a look", "[util][file_watch]") {
    const TemporaryFolder folder;
    FileWatch watch({folder.write("a", "x"), folder.write("b", "two"), ""});
    CHECK_FALSE(watch.changed());
    for (std::size_t size = 2; size < 10; ++size) {  // it is still being written
        folder.write("a", std::string(size, 'x'));
        CHECK_FALSE(watch.changed());
    }
    CHECK(watch.changed());
    CHECK_FALSE(watch.changed());
    CHECK_FALSE(watch.changed());
    FileWatch none({""});
    CHECK_FALSE(none.changed());
}

TEST_CASE("whatever happens to a file is a change", "[util][file_watch]") {
    const TemporaryFolder folder;
    const std::string a = folder.file("a"), b = folder.file("b"), link = folder.file("link");
    const struct {
        const char* name;
        std::function<void()> change;
    } table[] = {
        {"it is replaced by one of equal size and times",
         [&] {
             folder.write("other", "two");
             fs::last_write_time(folder.file("other"), fs::last_write_time(a));
             fs::rename(folder.file("other"), a);
         }},
        {"it is written anew with equal size", [&] { folder.write("a", "two"); }},
        {"others may read it", [&] { ::chmod(a.c_str(), 0644); }},
        {"it goes", [&] { fs::remove(a); }},
        {"it comes", [&] { folder.write("b", "two"); }},
        {"a link leads to another one, as mounted secrets do",
         [&] {
             fs::remove(link);
             fs::create_symlink("other", link);
         }},
    };
    for (const auto& [name, change] : table) {
        INFO(name);
        folder.write("a", "one");
        folder.write("other", "two");
        fs::last_write_time(a, fs::file_time_type::clock::now() - std::chrono::hours(1));
        fs::remove(b);
        fs::remove(link);
        fs::create_symlink("a", link);
        FileWatch watch({link, b});
        change();
        CHECK_FALSE(watch.changed());
        CHECK(watch.changed());
        CHECK_FALSE(watch.changed());
    }
}

TEST_CASE("a file that changes and changes back to what was known is not told of", "[util][file_watch]") {
    const TemporaryFolder folder;
    const std::string path = folder.write("a", "one");
    FileWatch watch({path});
    fs::rename(path, path + ".away");
    CHECK_FALSE(watch.changed());
    fs::rename(path + ".away", path);
    CHECK_FALSE(watch.changed());
    CHECK_FALSE(watch.changed());
}

TEST_CASE("a file is rejected that everybody may write to, or replace in its folder", "[util]") {
    const struct {
        mode_t folder, file;
        bool is_rejected;
    } table[] = {{0755, 0644, false}, {0755, 0646, true}, {0777, 0644, true}, {01777, 0644, false}};
    for (const auto& row : table) {
        const TemporaryFolder folder;
        const std::string path = folder.write("a", "", row.file);
        ::chmod(folder.path().c_str(), row.folder);
        CHECK(rejection_of_writers(path).empty() != row.is_rejected);
    }
}
