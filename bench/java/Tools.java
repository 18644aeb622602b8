import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's own performance tools again and again in one JVM, so that samples are not taken from a
 * client that is still being compiled. One line in: a class name and its arguments, separated by tabs.
 * Out: what the tool printed, then a line "== ok" or "== failed: why".
 */
public final class Tools {
    private static final class Exited extends RuntimeException {
        Exited(int status) {
            super("exit status " + status);
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream console = System.out;
        Exit.setExitProcedure((status, message) -> {
            throw new Exited(status);
        });
        Exit.setHaltProcedure((status, message) -> {
            throw new Exited(status);
        });
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t", -1);
            String[] rest = new String[words.length - 1];
            System.arraycopy(words, 1, rest, 0, rest.length);
            System.gc();
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
            String outcome = "== ok";
            try {
                Class.forName(words[0]).getMethod("main", String[].class).invoke(null, (Object) rest);
            } catch (java.lang.reflect.InvocationTargetException wrapped) {
                Throwable cause = wrapped.getCause();
                if (!(cause instanceof Exited) || !cause.getMessage().endsWith(" 0")) {
                    outcome = "== failed: " + String.valueOf(cause).replace('\n', ' ');
                }
            } finally {
                System.out.flush();
                System.setOut(console);
            }
            console.print(printed.toString(StandardCharsets.UTF_8));
            console.println();
            console.println(outcome);
            console.flush();
        }
    }
}
