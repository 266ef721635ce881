/* Runs a command for a limited time, because macOS has no timeout(1): limit_cli SECONDS COMMAND…
 * The command has a process group of its own, so that its children end with it. The exit status is
 * the command's, 128 + n after signal n, and 124 when its time was up. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GRACE_S = 5 }; /* between SIGTERM and SIGKILL */

static volatile sig_atomic_t group, n_alarms;

static void on_signal(int number)
{
    if (number != SIGALRM) {
        kill(-group, number);
        return;
    }
    kill(-group, n_alarms++ ? SIGKILL : SIGTERM);
    alarm(GRACE_S);
}

int main(int argc, char **argv)
{
    const int numbers[] = {SIGALRM, SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = on_signal};
    char *end = "";
    unsigned long seconds = argc > 2 ? strtoul(argv[1], &end, 10) : 0;
    int status;

    if (seconds == 0 || seconds > 1000000 || *end) {
        fprintf(stderr, "usage: limit_cli SECONDS COMMAND...\n");
        return 2;
    }
    pid_t child = fork();
    if (child < 0) {
        perror("limit_cli: fork");
        return 1;
    }
    if (child == 0) {
        setpgid(0, 0);
        execvp(argv[2], argv + 2);
        perror(argv[2]);
        _exit(127);
    }
    setpgid(child, child); /* whichever of the two is first */
    group = child;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sigaction(numbers[i], &action, NULL);
    alarm((unsigned)seconds);
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) return 1;
    if (n_alarms) {
        kill(-group, SIGKILL);
        return 124;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
