/* A plugin host: it loads the library, uses it on two threads, and unloads it twice. Its argument is the library. */
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#include "bursar.h"

static void *library;

static void *use(void *from) {
    int (*create)(const bursar_options *, bursar_group *, bursar_error **);
    int (*try_charge)(bursar_group, uint64_t, bursar_error **);
    bursar_group root;
    (void)from;
    *(void **)&create = dlsym(library, "bursar_create");
    *(void **)&try_charge = dlsym(library, "bursar_try_charge");
    return create(NULL, &root, NULL) || try_charge(root, 4096, NULL) ? &library : NULL;
}

int main(int count, char **arguments) {
    for (int turn = 0; turn < 2; turn++) {
        pthread_t thread;
        void *failed;
        if (count != 2 || !(library = dlopen(arguments[1], RTLD_NOW)) || use(NULL)) {
            return 1;
        }
        if (pthread_create(&thread, NULL, use, NULL) || pthread_join(thread, &failed) || failed) {
            return 2;
        }
        if (dlclose(library)) {
            return 3;
        }
    }
    /* This thread has words of the library's to give back when it ends. */
    puts("passed");
    return 0;
}
