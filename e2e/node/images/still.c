// Does nothing until it is told to end: the pause container of every pod, and the work of pods whose work is not looked at.
// As the first process of a pod it also buries orphans. `still stubborn` ignores SIGTERM; `still child` has a child.
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int signal) { _exit(128 + signal); }
static void bury(int signal) {
  (void)signal;
  while (waitpid(-1, NULL, WNOHANG) > 0) {
  }
}

int main(int count, char **arguments) {
  int stubborn = count > 1 && strcmp(arguments[1], "stubborn") == 0;
  int child = count > 1 && strcmp(arguments[1], "child") == 0;
  signal(SIGCHLD, bury);
  signal(SIGINT, end);
  signal(SIGTERM, stubborn ? SIG_IGN : end);
  if (child && fork() == 0) prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (;;) pause();
}
