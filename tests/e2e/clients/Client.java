import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;

/** POSTs twice as Java's client does by default: HTTP/2 preferred, so the first request offers an h2c upgrade. */
public class Client {
    public static void main(String[] arguments) throws Exception {
        HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_2).build();
        for (String task : new String[] {"first", "second"}) {
            HttpRequest request = HttpRequest.newBuilder(URI.create(arguments[0]))
                .timeout(Duration.ofSeconds(20))
                .header("content-type", "application/json")
                .POST(HttpRequest.BodyPublishers.ofString("{\"task\": \"" + task + "\"}"))
                .build();
            HttpResponse<String> answer = client.send(request, HttpResponse.BodyHandlers.ofString());
            System.out.println(answer.statusCode() + " " + answer.version() + " " + answer.body());
        }
    }
}
